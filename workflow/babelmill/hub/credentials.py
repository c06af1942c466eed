"""Read the token for the Hugging Face Hub, only from the environment: it is in no file, log or argument.

The rule reads the token before any job runs, and the stage reads it again, so this module imports nothing heavy.
"""

import os
import re

from babelmill.core.files import UserError


def hub_token() -> str:
    """Return the content of HF_TOKEN; raise a UserError if it cannot be used to publish now.

    No message contains any part of the token.
    """
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        raise UserError(
            "publishing needs a token of the Hugging Face Hub: make a token with write"
            " access at https://huggingface.co/settings/tokens and set it as the environment variable HF_TOKEN"
        )
    if not re.fullmatch(r"[!-~]+", token):  # otherwise the HTTP client's error message would contain the token
        raise UserError("HF_TOKEN contains white space or characters that a token cannot have; copy the token again")
    offline = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    if offline.upper() in ("1", "ON", "YES", "TRUE"):  # the values that huggingface_hub accepts
        raise UserError("publishing needs the network, but HF_HUB_OFFLINE is set; set HF_HUB_OFFLINE=0")
    return token
