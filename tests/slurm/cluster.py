"""A real Slurm cluster on one host: munge, MariaDB, slurmdbd, slurmctld and three slurmd, all under one private folder.

Nothing of the system's own configuration is read or changed: own keys, sockets, ports and data. It needs root and the
Debian packages in `PACKAGES`. Use it from a shell::

    python tests/slurm/cluster.py install      # the packages, by apt-get
    eval "$(python tests/slurm/cluster.py up)" # boots; prints the environment that commands need
    python tests/slurm/cluster.py down

Several clusters stand side by side where `INSTANCE_VARIABLE` gives each a number of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "munge", "mariadb-server")
PROGRAMS = ("slurmctld", "slurmd", "sinfo", "slurmdbd", "munged", "mysqld", "sacctmgr")
CLUSTER = "campaign"
NODES = ("n1", "n2", "n3")
BASE = Path("/var/tmp/campaign-slurm")  # noqa: S108  # private by mode 755 and root ownership, made below
INSTANCE_VARIABLE = "CAMPAIGN_SLURM_INSTANCE"
"""Number of the cluster, 0 by default: folder and ports follow from it."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ClusterError(Exception):
    """The cluster could not be booted; the message says which daemon and where its log lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """TCP ports of the daemons, all on the loopback interface."""

    slurmctld: int = 26817
    slurmdbd: int = 26819
    slurmd: int = 27001
    """The first node's; the others follow."""


def _instance() -> int:
    return int(os.environ.get(INSTANCE_VARIABLE, "0"))


def _own_base() -> Path:
    number = _instance()
    return BASE.with_name(f"{BASE.name}-{number}") if number else BASE


def _own_ports() -> Ports:
    shift = 10 * _instance()
    return Ports(slurmctld=26817 + shift, slurmdbd=26819 + shift, slurmd=27001 + shift)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One private cluster below a folder."""

    base: Path = field(default_factory=_own_base)
    ports: Ports = field(default_factory=_own_ports)
    task_plugin: str = "task/none"
    """``task/affinity`` binds the processes of a job to the CPUs that it was given."""
    accounting: bool = True
    """Whether there is an accounting database."""
    features: str = ""
    """Of the first node alone, separated by commas."""
    gpus: int = 0
    """Of each node, files that stand for them."""
    min_job_age_s: int = 300
    """How long the controller remembers a job that has ended."""

    @property
    def conf(self) -> Path:
        """Path of slurm.conf."""
        return self.base / "etc" / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which Slurm's commands reach this cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def log(self, name: str) -> Path:
        """Return the log of one daemon."""
        return self.base / "log" / f"{name}.log"

    def pid_file(self, name: str) -> Path:
        """Return the pid file of one daemon."""
        return self.base / "run" / f"{name}.pid"


def binding(cluster: Cluster) -> Cluster:
    """Return another cluster, beside one, which binds processes to CPUs."""
    return replace(_beside(cluster, "binding"), task_plugin="task/affinity")


def bare(cluster: Cluster) -> Cluster:
    """Return another cluster, beside one: without accounting, soon forgetting jobs, its nodes with GPUs and unlike."""
    return replace(_beside(cluster, "bare"), accounting=False, features="fast,new", gpus=2, min_job_age_s=5)


def _beside(cluster: Cluster, name: str) -> Cluster:
    """Return the place of another cluster; of those there is one at a time."""
    ports = cluster.ports
    beside = Ports(slurmctld=ports.slurmctld + 5, slurmdbd=ports.slurmdbd + 5, slurmd=ports.slurmd + 5)
    return Cluster(base=cluster.base.with_name(f"{cluster.base.name}-{name}"), ports=beside)


def missing_programs() -> list[str]:
    """Return the programs of the cluster that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


def why_unavailable() -> str:
    """Return one line that says why no cluster can run here; empty if one can."""
    if os.geteuid() != 0:
        return "the Slurm tests need root to boot a cluster of their own"
    if absent := missing_programs():
        return f"the Slurm tests need Debian's packages {' '.join(PACKAGES)} (missing: {' '.join(absent)})"
    return ""


def install_packages() -> None:
    """Install the Debian packages that the cluster needs, if any is missing."""
    if not missing_programs():
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], check=True, env=environment, stdout=sys.stderr)
    subprocess.run(
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES],
        check=True,
        env=environment,
        stdout=sys.stderr,
    )


def slurm_conf(cluster: Cluster) -> str:
    """Return slurm.conf: two partitions of one priority each over the same nodes, preemption by requeue."""
    base = cluster.base
    return f"""ClusterName={CLUSTER}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={cluster.ports.slurmctld}
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={base}/munged/munge.socket
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={cluster.pid_file("slurmctld")}
SlurmdPidFile={base}/run/slurmd-%n.pid
SlurmctldLogFile={cluster.log("slurmctld")}
SlurmdLogFile={base}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin={cluster.task_plugin}
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
JobAcctGatherType=jobacct_gather/linux
{_accounting_conf(cluster)}
ReturnToService=2
KillWait=5
MinJobAge={cluster.min_job_age_s}
MaxArraySize=1001
SlurmdTimeout=20
InactiveLimit=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{_nodes_conf(cluster)}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=10
"""


def _accounting_conf(cluster: Cluster) -> str:
    if not cluster.accounting:
        return "AccountingStorageType=accounting_storage/none"
    return f"""AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={cluster.ports.slurmdbd}
AccountingStorageUser=slurm
AccountingStoragePass={cluster.base}/munged/munge.socket
AccountingStoreFlags=job_comment"""


def _nodes_conf(cluster: Cluster) -> str:
    lines = ["GresTypes=gpu"] if cluster.gpus else []
    for number, node in enumerate(NODES):
        line = f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={cluster.ports.slurmd + number}"
        line += f" Feature={cluster.features}" if cluster.features and not number else ""
        line += f" Gres=gpu:{cluster.gpus}" if cluster.gpus else ""
        lines.append(f"{line} CPUs=2 RealMemory=8000 State=UNKNOWN")
    return "\n".join(lines)


def slurmdbd_conf(cluster: Cluster) -> str:
    """Return slurmdbd.conf."""
    base = cluster.base
    return f"""AuthType=auth/munge
AuthInfo=socket={base}/munged/munge.socket
DbdHost=localhost
DbdPort={cluster.ports.slurmdbd}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StoragePort=0
StorageLoc=slurm_acct_db
StorageUser=slurm
StoragePass=slurm
PidFile={cluster.pid_file("slurmdbd")}
LogFile={cluster.log("slurmdbd")}
"""


def _chown(path: Path, user: str) -> None:
    record = pwd.getpwnam(user)
    os.chown(path, record.pw_uid, record.pw_gid)


def _folder(path: Path, user: str = "root", mode: int = 0o755) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    _chown(path, user)
    return path


def _lay_out(cluster: Cluster) -> None:
    base = _folder(cluster.base)
    _folder(base / "etc")
    _folder(base / "log", "slurm", 0o777)
    _folder(base / "munged", "munge")
    _folder(base / "munge", "munge", 0o700)
    _folder(base / "run", "slurm")
    _folder(base / "state", "slurm")
    _folder(base / "spool")
    _folder(base / "mysql", "mysql", 0o700)
    _folder(base / "mysqld", "mysql")
    for node in NODES:
        _folder(base / "spool" / node)
    cluster.conf.write_text(slurm_conf(cluster))
    _lay_out_gpus(cluster)
    dbd = cluster.conf.with_name("slurmdbd.conf")
    dbd.write_text(slurmdbd_conf(cluster))
    dbd.chmod(0o600)
    _chown(dbd, "slurm")
    key = base / "munge" / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    _chown(key, "munge")


def _lay_out_gpus(cluster: Cluster) -> None:
    """Make the files that stand for GPUs, and say which they are."""
    if not cluster.gpus:
        return
    devices = _folder(cluster.base / "devices")
    for number in range(cluster.gpus):
        (devices / f"gpu{number}").touch()
    cluster.conf.with_name("gres.conf").write_text(f"Name=gpu File={devices}/gpu[0-{cluster.gpus - 1}]\n")


def _environment(cluster: Cluster) -> dict[str, str]:
    # A bare environment: what the caller's shell carries (SLURM_*, PYTHON*) must not leak into daemons and jobs.
    return {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root", **cluster.environment}


def _run(cluster: Cluster, *command: str, user: str = "", text: str | None = None) -> str:
    prefix = ["runuser", "-u", user, "--"] if user else []
    done = subprocess.run(
        [*prefix, *command], env=_environment(cluster), input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _start(cluster: Cluster, name: str, *command: str, user: str = "") -> None:
    """Start a daemon that stays in the foreground of a session of its own, as nobody's child."""
    prefix = ["runuser", "-u", user, "--"] if user else []
    with cluster.log(f"{name}.out").open("ab") as log:
        subprocess.run(
            ["setsid", "--fork", *prefix, *command],
            env=_environment(cluster),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )


def wait_until(what: str, ready: Callable[[], bool], log: Path, seconds: float = 60.0) -> None:
    """Poll until something is so.

    Raises:
        ClusterError: It was not within the given seconds.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ClusterError, OSError):
            if ready():
                return
        time.sleep(0.1)
    raise ClusterError(f"{what} did not come up within {seconds:.0f} s; see {log}")


def _boot_munge(cluster: Cluster) -> None:
    base = cluster.base
    socket = base / "munged" / "munge.socket"
    _run(
        cluster, "munged", f"--socket={socket}", f"--key-file={base}/munge/munge.key", f"--seed-file={base}/munge/seed",
        f"--pid-file={base}/munged/munged.pid", f"--log-file={base}/munge/munged.log", user="munge",
    )  # fmt: skip
    wait_until("munged", lambda: bool(_run(cluster, "munge", f"--socket={socket}", "-n")), base / "munge/munged.log")


def _boot_database(cluster: Cluster) -> None:
    base = cluster.base
    data, socket = base / "mysql", base / "mysqld" / "mysql.sock"
    if not (data / "mysql").is_dir():
        _run(
            cluster, "mysql_install_db", "--no-defaults", "--user=mysql", f"--datadir={data}",
            "--auth-root-authentication-method=socket", "--skip-test-db",
        )  # fmt: skip
    _start(
        cluster, "mysqld", "mysqld", "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking",
        f"--pid-file={base}/mysqld/mysqld.pid", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900",
        "--innodb-flush-log-at-trx-commit=0", user="mysql",
    )  # fmt: skip
    client = ("mysql", "--no-defaults", f"--socket={socket}", "-u", "root")
    wait_until("mysqld", lambda: bool(_run(cluster, *client, "-e", "select 1")), cluster.log("mysqld.out"))
    _run(
        cluster, *client,
        text="create database if not exists slurm_acct_db;"
        " create user if not exists slurm@localhost identified by 'slurm';"
        " grant all on slurm_acct_db.* to slurm@localhost;",
    )  # fmt: skip


def start_database(cluster: Cluster) -> None:
    """Start slurmdbd and wait until it answers."""
    # slurmdbd finds its configuration beside slurm.conf, and the database by the client library's socket variable.
    socket = cluster.base / "mysqld" / "mysql.sock"
    _start(cluster, "slurmdbd", "env", f"MYSQL_UNIX_PORT={socket}", "slurmdbd", "-D", user="slurm")
    wait_until("slurmdbd", lambda: bool(_run(cluster, "sacctmgr", "-n", "list", "qos")), cluster.log("slurmdbd"))


def start_controller(cluster: Cluster) -> None:
    """Start slurmctld, with whatever it saved before, and wait until it answers."""
    _start(cluster, "slurmctld", "slurmctld", "-D", user="slurm")
    wait_until("slurmctld", lambda: bool(_run(cluster, "sinfo", "-h")), cluster.log("slurmctld"))


def restart_controller(cluster: Cluster) -> None:
    """End the controller in order and start it again: it reads slurm.conf anew.

    It also writes what it knows of accounting, which it else does every few minutes; one that was killed before it did
    so does not start without slurmdbd.
    """
    running = [pid for pid, name in _daemons(cluster) if name == "slurmctld"]
    signal_daemon(cluster, "slurmctld", signal.SIGTERM)
    wait_until("the end of slurmctld", lambda: not _are_running(running), cluster.log("slurmctld"))
    start_controller(cluster)


def _are_running(pids: Sequence[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def _boot_slurm(cluster: Cluster) -> None:
    if cluster.accounting:
        _boot_database(cluster)
        start_database(cluster)
        if CLUSTER not in _run(cluster, "sacctmgr", "-n", "list", "cluster"):
            _run(cluster, "sacctmgr", "-i", "add", "cluster", CLUSTER)
    start_controller(cluster)
    for node in NODES:
        start_node(cluster, node)
    wait_until("the nodes", lambda: num_idle(cluster) == len(NODES), cluster.log("slurmctld"))


def restore(cluster: Cluster) -> None:
    """Wait until all nodes are idle again; a cluster that a test has left otherwise is booted anew."""
    try:
        wait_until("all nodes", lambda: is_up(cluster), cluster.log("slurmctld"), seconds=40.0)
    except ClusterError:
        down(cluster)
        up(cluster)


def start_node(cluster: Cluster, node: str) -> None:
    """Start a node's daemon."""
    _start(cluster, f"slurmd-{node}", "slurmd", "-D", "-N", node)


def signal_daemon(cluster: Cluster, name: str, number: signal.Signals) -> None:
    """Send a signal to the controller or the accounting daemon.

    Raises:
        ClusterError: It does not run.
    """
    pids = [pid for pid, found in _daemons(cluster) if found == name]
    if not pids:
        raise ClusterError(f"no {name} of this cluster runs")
    for pid in pids:
        os.kill(pid, number)


def _node_daemon(cluster: Cluster, node: str) -> list[int]:
    command = [b"slurmd", b"-D", b"-N", node.encode()]
    conf = str(cluster.conf).encode()
    return [pid for pid, line, around in _processes() if line.split(b"\0")[:4] == command and conf in around]


def kill_node_daemon(cluster: Cluster, node: str) -> None:
    """Kill a node's daemon alone: what its jobs run goes on."""
    for pid in _node_daemon(cluster, node):
        os.kill(pid, signal.SIGKILL)


def crash(cluster: Cluster, node: str) -> None:
    """Let a node vanish: its daemon, and at the same moment everything that its jobs run."""
    daemon = _node_daemon(cluster, node)
    own = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={cluster.conf}".encode()}
    steps = [pid for pid, _, environment in _processes() if own <= set(environment.split(b"\0"))]
    if not daemon or not steps:
        raise ClusterError(f"nothing runs on {node}: daemon {daemon}, processes of jobs {steps}")
    watchers = {_read_parent(pid) for pid in steps} - set(steps) - {1}
    for pid in (*daemon, *watchers, *steps):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[tuple[int, bytes, bytes]]:
    """Yield pid, command line and environment of every process that can be looked at."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()


def _read_parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text[text.rindex(")") + 1 :].split()[1])


def num_idle(cluster: Cluster) -> int:
    """Return how many nodes are idle."""
    states = _run(cluster, "sinfo", "-h", "-N", "-p", "main", "-o", "%T").split()
    return sum(state == "idle" for state in states)


def is_up(cluster: Cluster) -> bool:
    """Return whether the controller answers and every node is usable."""
    if not cluster.conf.is_file() or missing_programs():
        return False
    try:
        states = _run(cluster, "sinfo", "-h", "-N", "-p", "main", "-o", "%T").split()
    except ClusterError:
        return False
    return len(states) == len(NODES) and all(state in ("idle", "mixed", "allocated", "completing") for state in states)


def up(cluster: Cluster) -> None:
    """Boot the cluster from nothing; leave it alone if it is up.

    Raises:
        ClusterError: A daemon did not come up.
    """
    if reason := why_unavailable():
        raise ClusterError(reason)
    if is_up(cluster):
        return
    down(cluster)
    _lay_out(cluster)
    _boot_munge(cluster)
    _boot_slurm(cluster)


def _daemons(cluster: Cluster) -> Iterator[tuple[int, str]]:
    """Yield pid and command line of every process that names this cluster's folder or configuration."""
    needle = f"{cluster.base}/".encode()  # another cluster's folder may begin with the same name
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            name = (entry / "comm").read_text().strip()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        slurm = name in ("slurmctld", "slurmd", "slurmdbd", "slurmstepd", "runuser") and needle in environment
        if slurm or (needle in line and name in ("munged", "mysqld", "mariadbd", "runuser")):
            yield int(entry.name), name


def down(cluster: Cluster) -> None:
    """End every process of the cluster and remove its folder."""
    for number, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        for pid, _ in _daemons(cluster):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while any(_daemons(cluster)) and time.monotonic() < deadline:
            time.sleep(0.1)
    shutil.rmtree(cluster.base, ignore_errors=True)


def exports(variables: Mapping[str, str]) -> str:
    """Return shell lines that set variables."""
    return "\n".join(f"export {name}={value}" for name, value in variables.items())


def main() -> int:
    """Run one verb from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("install", "up", "down", "status"))
    verb = parser.parse_args().verb
    cluster = Cluster()
    try:
        if verb == "install":
            install_packages()
        elif verb == "up":
            up(cluster)
            print(exports(cluster.environment))
        elif verb == "down":
            down(cluster)
        else:
            print("up" if is_up(cluster) else "down")
    except (ClusterError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 6
    return 0


if __name__ == "__main__":
    sys.exit(main())
