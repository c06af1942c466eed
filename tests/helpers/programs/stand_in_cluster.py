"""Stand in for the commands of LSF, PBS, HTCondor and Kubernetes: jobs run at once, as processes of this machine.

It shows that profiles and job scripts fit together. It cannot show that a real scheduler takes what they say.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

COMMANDS = ("bsub", "bjobs", "bkill", "qsub", "qstat", "qdel", "condor_submit", "condor_q", "condor_rm", "kubectl")
VARIABLE = "STAND_IN_CLUSTER"  # the folder with the jobs: {number}.json, {number}.pid while it runs
AGAIN = 99


def install(folder: Path) -> dict[str, str]:
    """Make the commands in a folder. Return the environment in which programs find them."""
    (folder / "bin").mkdir(parents=True)
    for name in COMMANDS:
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} -I {__file__} {name} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    return os.environ | {VARIABLE: str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}


def submit(asked: str, command: list[str], environment: dict[str, str], folder: str) -> str:
    """Start a job. `asked`: what the user asked for. Return its number."""
    jobs = Path(os.environ[VARIABLE])
    number = str(100 + len(list(jobs.glob("*.json"))))
    named = {name: value.replace("NUMBER", number) for name, value in environment.items()}
    about = {"asked": asked, "command": command, "environment": named, "folder": folder}
    (jobs / f"{number}.json").write_text(json.dumps(about))
    run = [sys.executable, "-I", __file__, "run", number]
    output = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    (jobs / f"{number}.pid").touch()
    subprocess.Popen(run, start_new_session=True, **output)
    return number


def run(number: str) -> None:
    """Run a job, as often as it asks for."""
    jobs = Path(os.environ[VARIABLE])
    about = json.loads((jobs / f"{number}.json").read_text())
    code = AGAIN
    while code == AGAIN and not (jobs / f"{number}.removed").exists():
        with open(jobs / f"{number}.txt", "a") as output:
            job = subprocess.Popen(
                about["command"],
                cwd=about["folder"],
                env=os.environ | about["environment"],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        (jobs / f"{number}.pid").write_text(str(job.pid))
        code = job.wait()
        with open(jobs / f"{number}.codes", "a") as codes:
            print(code, file=codes)
    (jobs / f"{number}.pid").unlink()


def main(name: str, *arguments: str) -> str:
    """Return what a command prints."""
    jobs, here = Path(os.environ[VARIABLE]), os.getcwd()
    if name == "bsub":
        script = jobs / f"spooled-{len(list(jobs.iterdir()))}"
        script.write_text(sys.stdin.read())
        number = submit(" ".join(arguments), ["/bin/sh", str(script)], {"LSB_JOBID": "NUMBER"}, here)
        return f"Job <{number}> is submitted to default queue <normal>."
    if name == "qsub":
        where = {"PBS_JOBID": "NUMBER.server", "PBS_O_WORKDIR": here}
        return submit(" ".join(arguments[:-1]), ["/bin/sh", arguments[-1]], where, "/") + ".server"
    if name == "condor_submit":
        text = sys.stdin.read()
        values = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
        variable, value = values["environment"].strip('"').split()[0].split("=")
        value = value.replace("$(ClusterId)", "NUMBER").replace("$(ProcId)", "0")
        number = submit(text, [values["executable"]], {variable: value}, values["initialdir"])
        return f"{number}.0 - {number}.0"
    if (name, *arguments[:1]) == ("kubectl", "create"):
        text = sys.stdin.read()
        (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
        (variable,) = (entry["name"] for entry in container["env"])
        number = submit(text, container["command"], {variable: "babelmill-NUMBER"}, container["workingDir"])
        return f"job.batch/babelmill-{number}"
    numbers = re.findall(r"\d{3}", " ".join(arguments))
    if name in ("bkill", "qdel", "condor_rm") or "delete" in arguments:
        for number in numbers:
            (jobs / f"{number}.removed").touch()
            os.killpg(int((jobs / f"{number}.pid").read_text()), 15)
        return ""
    (number,) = numbers
    running = (jobs / f"{number}.pid").exists()
    return {
        "bjobs": "RUN" if running else "DONE",
        "qstat": f"job_state = {'R' if running else 'F'}",
        "condor_q": "2" if running else "",
        "kubectl": "" if running else "SuccessCriteriaMet Complete",
    }[name]


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2])
    else:
        print(main(*sys.argv[1:]))
