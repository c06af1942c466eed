"""The token for the Hugging Face Hub: from the environment alone, in no file, log or argument.

It is asked for by the rule before anything runs and again by the stage, so this imports nothing heavy.
"""

import os
import re

from babelmill.core.files import UserError


def hub_token() -> str:
    """What HF_TOKEN holds; a UserError if it cannot be used to publish now. No message has any part of it."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        raise UserError(
            "publishing needs a token of the Hugging Face Hub: make one that may write at"
            " https://huggingface.co/settings/tokens and set it as the environment variable HF_TOKEN"
        )
    if not re.fullmatch(r"[!-~]+", token):  # the HTTP client's own message would quote it
        raise UserError("HF_TOKEN holds white space or characters that no token has; copy the token again")
    offline = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    if offline.upper() in ("1", "ON", "YES", "TRUE"):  # as huggingface_hub reads them
        raise UserError("publishing needs the network, and HF_HUB_OFFLINE is set; say HF_HUB_OFFLINE=0")
    return token
