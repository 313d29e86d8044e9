"""The batch system and the network around this machine.

    findings()      scheduler, network, ports
"""
from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping

from seatrial.doctor import Finding
from seatrial.errors import BadInput

ASK_S = 10.0


def findings() -> Iterator[Finding]:
    yield scheduler(os.environ)
    yield network(socket.gethostname())
    yield ports()


def scheduler(env: Mapping[str, str]) -> Finding:
    from seatrial.launch.batch import ask
    from seatrial.launch.registry import LAUNCHERS

    try:
        kinds = [kind for name in LAUNCHERS.names() if not (kind := LAUNCHERS.get(name)).here]
    except BadInput as error:
        return Finding("scheduler", "warn", str(error), "mend that distribution, or uninstall it")
    for kind in kinds:
        if kind.missing():
            continue
        option = f"--launcher {kind.name}"
        try:
            output = ask(*kind.question, timeout_s=ASK_S, both=True).strip() if kind.question else ""
        except BadInput as error:
            return Finding("scheduler", "warn", f"{kind.title} is installed and does not answer ({error})",
                           f"trials run on this machine until {option} works")
        job = env.get(kind.job_variable)
        facts = {"scheduler": kind.title, "job": job, "said": output.splitlines()[:20]}
        first = f", {output.splitlines()[0]}" if output and kind.name == "slurm" else ""
        where = f", inside job {job}" if job else f"; {option} sends trials there"
        return Finding("scheduler", "ok", f"{kind.title}{first}{where}", facts=facts)
    return Finding("scheduler", "ok", f"neither {' nor '.join(kind.title for kind in kinds)}: trials run on this machine")


def network(name: str) -> Finding:
    """Whether this host's own name leads back to it, which gloo and NCCL take for granted between nodes."""
    from seatrial.launch.agent import own_address

    interface, address = own_address()
    facts: dict[str, object] = {"host": name, "interface": interface, "address": address}
    here = f"{interface} {address}" if interface else "loopback alone"
    try:
        found = sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)})
    except OSError:
        return Finding("network", "warn", f"{here}; the name {name} leads nowhere",
                       "seatrial's launchers use the address itself; for others set GLOO_SOCKET_IFNAME", facts)
    facts["resolves_to"] = found
    if not any(_is_mine(ip) for ip in found):
        return Finding("network", "warn", f"{here}; the name {name} leads to {', '.join(found)}, which is not this machine",
                       f"set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME{'=' + interface if interface else ''}", facts)
    if interface and all(ip.startswith("127.") for ip in found):
        output = f"{here}; {name} is {found[0]}, so torchrun over several nodes would need GLOO_SOCKET_IFNAME={interface}"
        return Finding("network", "ok", output, facts=facts)
    return Finding("network", "ok", f"{here}; {name} is {', '.join(found)}", facts=facts)


def ports() -> Finding:
    """A port can be opened and reached on loopback, and on the address that other nodes would use."""
    from seatrial.launch.agent import own_address

    tried = list(dict.fromkeys(["127.0.0.1", own_address()[1]]))
    for address in tried:
        try:
            with socket.create_server((address, 0)) as server:
                server.settimeout(5.0)
                with socket.create_connection(server.getsockname()[:2], timeout=5.0) as guest:
                    host, _ = server.accept()
                    with host:
                        guest.sendall(b"seatrial")
                        host.settimeout(5.0)
                        answer = host.recv(8)
        except OSError as error:
            return Finding("ports", "fail" if address == "127.0.0.1" else "warn", f"{address} cannot be reached ({error})",
                           "a firewall or a sandbox is in the way of the ranks")
        if answer != b"seatrial":
            return Finding("ports", "fail", f"{address} answers with other bytes than were sent", "a proxy is in the way")
    return Finding("ports", "ok", f"open on {' and '.join(tried)}", facts={"addresses": tried})


def _is_mine(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
