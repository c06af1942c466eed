"""Shuffle the times of a finished tree again and again, and see what Snakemake would run: for test_file_times.py.

    python tests/scripts/file_time_checks.py DRAWS SEED SNAKEFILE TARGET ...

It builds the graph once, by a real dry run in the present folder. For each draw it gives every file another time, sets
the times as the rules do, and asks Snakemake's graph again. It prints the sets of folders that would be made again,
each once, with how often.
"""

import asyncio
import collections
import os
import random
import sys
import time
from pathlib import Path

from snakemake.api import SnakemakeApi
from snakemake.settings.types import DAGSettings, OutputSettings, Quietness, ResourceSettings

DAY = 86400


def shuffle(draw: random.Random) -> None:
    """Give every file and folder a time between long ago and soon; some get the time 0, or the same as others."""
    now = time.time()
    for path in [path for top in ("results", "converted", "reports") for path in Path(top).rglob("*")]:
        moment = draw.choice([0, now - DAY, now + DAY, now + draw.uniform(-9, 9), now + draw.uniform(-DAY, DAY)])
        os.utime(path, (moment, moment))


def folder_of(output: str) -> str:
    """Return the folder of a job's results."""
    return str(output) if Path(output).suffix == "" else Path(output).parent.as_posix()


def main() -> None:
    draws, seed, snakefile, *targets = sys.argv[1:]
    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
        workflow_api = api.workflow(ResourceSettings(cores=1), snakefile=Path(snakefile))
        workflow_api.dag(DAGSettings(targets=targets)).execute_workflow(executor="dryrun")
        workflow = workflow_api._workflow
        known, dag = workflow.globals, workflow.dag
        dag._finished.clear()
        found, draw = collections.Counter(), random.Random(seed)
        for _ in range(int(draws)):
            shuffle(draw)
            times = known["FileTimes"](known["CONFIG"])
            for job in dag.jobs:
                if stage := known["STAGES"].get(job.rule.name):
                    times.obey(stage, job.wildcards_dict[stage.of])
                elif job.rule.name == "report":
                    known["reports"].write_settings(known["CONFIG"], job.wildcards.batch, times)
            workflow.iocache.clear()
            workflow.iocache.exists_local.has_inventory.clear()
            for job in dag.jobs:
                dag.reason(job).clear()
            asyncio.run(dag.update_needrun(create_inventory=True))
            jobs = [job for job in dag.needrun_jobs() if job.rule.name != "all"]
            found[" ".join(sorted({folder_of(job.output[0]) for job in jobs}))] += 1
    for jobs, count in found.items():
        print(f"{count} draws: {jobs}")


if __name__ == "__main__":
    main()
