"""A signature of the head line, checked by ssh-keygen against the keys that the reader trusts."""

from __future__ import annotations

import subprocess

from .closing import head_line
from .facts import Facts, Signature
from .findings import Check

NAMESPACE = "campaign-head"
TIMEOUT_S = 60.0


def check(facts: Facts, check: Check, signature: Signature) -> None:
    """Check that somebody whom the reader trusts signed the head line of this very ledger.

    Args:
        facts: The ledger is known.
        check: Where findings go.
        signature: The signature.
    """
    line = head_line(facts)
    if not line:
        check.tampered(str(signature.file), "signs a closed campaign, and this one is not closed: its end was removed")
        return
    arguments = ["-f", str(signature.allowed_signers), "-I", signature.identity, "-n", NAMESPACE]
    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", "verify", *arguments, "-s", str(signature.file)],
            input=f"{line}\n".encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        check.not_checked("ssh-keygen is not installed here: the signature was not looked at")
        return
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        check.not_checked(f"ssh-keygen could not be run: {error}")
        return
    if done.returncode == 0:
        check.remark(f"signed by {signature.identity}")
        return
    said = (done.stdout + done.stderr).decode("utf-8", "backslashreplace").split("\n")
    why = "; ".join(part.strip() for part in said if part.strip()) or f"ssh-keygen ended with {done.returncode}"
    check.tampered(str(signature.file), f"does not sign the head line of this ledger as {signature.identity}: {why}")
