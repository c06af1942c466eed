"""Read the token for the Hugging Face Hub: from the environment or `hf auth login`, never from a file of the workflow.

The rule reads the token before any job runs, and the stage reads it again.
"""

import re

from babelmill.core.files import UserError


def hub_token() -> str:
    """Return the token; raise a UserError, which contains no part of it, if it cannot be used to publish now."""
    from huggingface_hub import constants, get_token  # only who publishes waits for this import

    token = get_token()
    if not token:
        raise UserError(
            "publishing needs a token of the Hugging Face Hub: make a token with write access at"
            " https://huggingface.co/settings/tokens, and set it as the environment variable HF_TOKEN or run"
            " `hf auth login`"
        )
    if not re.fullmatch(r"[!-~]+", token):  # otherwise the HTTP client's error message would contain the token
        raise UserError("HF_TOKEN contains white space or characters that a token cannot have; copy the token again")
    if constants.is_offline_mode():
        raise UserError("publishing needs the network, but HF_HUB_OFFLINE is set; set HF_HUB_OFFLINE=0")
    return token
