"""What all parts of the Kafka log share: errors in plain words, deadlines, quiet clients, and their end.

aiokafka tries most things again for ever and tells its reasons only to the logging module. Here every wait
has a deadline, a failure becomes one `LogError` that names the broker, the operation and what to do, and
clients whose broker is away are closed without waiting for it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors as kafka_errors
import anyio
import structlog
from aiokafka.conn import AIOKafkaConnection
from anyio.lowlevel import cancel_shielded_checkpoint

from simulator.errors import FencedError, LogError, TopicError
from simulator.log.kafka_config import PASSWORD_VARIABLE, USERNAME_VARIABLE, KafkaConfig

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)

RETRY_S = 0.05
UNKNOWN_FOR_S = 5.0
"""How long a broker may not know a topic that another shows (the topic has just been made, or the broker has just
started), or other brokers, which have just started."""
CLOSE_S = 5.0
"""How long a client may take to say goodbye to its broker."""

_NO_RIGHTS = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailed,
)
_REFUSED = (
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.AuthenticationMethodNotSupported,
    kafka_errors.IllegalSaslStateError,
)
_FENCED = (
    kafka_errors.ProducerFenced,
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.CommitFailedError,
    kafka_errors.InvalidProducerIdMapping,
)
_PASSES = (
    kafka_errors.NoError,  # raised by aiokafka for errors of single partitions whose code it does not look at
    kafka_errors.UnknownError,  # what a broker stumbled over while it starts or ends, and codes new to aiokafka
    kafka_errors.KafkaTimeoutError,
    kafka_errors.BrokerNotAvailableError,
    kafka_errors.ReplicaNotAvailableError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.ConcurrentTransactions,
)
"""What may go well a moment later, although aiokafka does not call it so."""
_BELIEVED_LATER = (
    kafka_errors.UnknownTopicOrPartitionError,
    kafka_errors.InvalidReplicationFactorError,
)


def quiet_aiokafka() -> None:
    """Keep aiokafka's own lines from the terminal, unless somebody has asked for them by a level of their
    own."""
    logger = logging.getLogger("aiokafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)


def log_error(config: KafkaConfig, operation: str, error: BaseException) -> LogError:
    """What went wrong at the broker, in one line with what to do."""
    where = f"Kafka at {config}"
    reason = reason_of(error)
    if isinstance(error, _FENCED):
        return FencedError(f"{where}: can't {operation}: another consumer owns these partitions now")
    if isinstance(error, _NO_RIGHTS):
        return LogError(
            f"{where}: can't {operation}: no right to do it ({reason}); ask for an ACL that allows it for "
            f"{'the user in ' + USERNAME_VARIABLE if config.username else 'this client'}"
        )
    if isinstance(error, kafka_errors.MessageSizeTooLargeError | kafka_errors.RecordListTooLargeError):
        return LogError(
            f"{where}: can't {operation}: a record is larger than the topic's max.message.bytes allows"
        )
    if isinstance(error, kafka_errors.UnknownTopicOrPartitionError):
        return TopicError(
            f"{where}: can't {operation}: a topic or partition is missing there; was it deleted?"
        )
    if isinstance(error, kafka_errors.InvalidReplicationFactorError):
        return TopicError(
            f"{where}: can't {operation}: {reason}; set ?replication= to at most the number of brokers"
        )
    if isinstance(error, TimeoutError):
        return LogError(f"{where}: can't {operation}: no answer in time; is the broker up, and the network?")
    return LogError(f"{where}: can't {operation}: {reason}")


def may_pass(error: BaseException, *also: type[BaseException]) -> bool:
    """Whether what failed so may go well a moment later; `also`: other errors of which the caller knows it. aiokafka's
    `KafkaError` itself is what it did not foresee, as a connection that broke while it asked who coordinates: there
    the cause tells, if it is one of Kafka's."""
    if type(error) is kafka_errors.KafkaError:
        cause = error.__cause__
        return not isinstance(cause, kafka_errors.KafkaError) or may_pass(cause, *also)
    return isinstance(error, (*_PASSES, *also)) or getattr(
        error, "retriable", isinstance(error, TimeoutError | OSError)
    )


def reason_of(error: BaseException) -> str:
    """An error's own words on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def retried(config: KafkaConfig, operation: str, attempt: Callable[[], Awaitable[_T]]) -> _T:
    """An operation that may be done twice, tried until it works, fails for good, or `timeout_ms` is over. That a topic
    is unknown, or that there are too few brokers, is believed after `UNKNOWN_FOR_S`."""
    last: Exception = TimeoutError()
    unknown_since_s: float | None = None
    with anyio.move_on_after(config.timeout_s):
        while True:
            try:
                return await attempt()
            except (kafka_errors.KafkaError, TimeoutError, OSError) as error:
                again = may_pass(error)
                if isinstance(error, _BELIEVED_LATER):
                    unknown_since_s = unknown_since_s or anyio.current_time()
                    again = anyio.current_time() - unknown_since_s < UNKNOWN_FOR_S
                if not again:
                    raise log_error(config, operation, error) from error
                last = error
            await anyio.sleep(RETRY_S)
    raise log_error(config, operation, last) from last


async def check_reachable(config: KafkaConfig, options: dict[str, Any]) -> None:
    """Connect to the first broker that answers, and let go. Raises a LogError that says what each of them did
    instead, within `connect_timeout_ms`."""
    failures: list[str] = []
    ours = (
        "security_protocol",
        "ssl_context",
        "sasl_mechanism",
        "sasl_plain_username",
        "sasl_plain_password",
    )
    given = {name: value for name, value in options.items() if name in ours}
    deadline_s = anyio.current_time() + config.connect_timeout_ms / 1000
    for i, server in enumerate(config.servers):
        # One that refuses at once leaves its time to the others
        each_s = max(0.1, (deadline_s - anyio.current_time()) / (len(config.servers) - i))
        host, _, port = server.rpartition(":")
        connection = AIOKafkaConnection(
            host.strip("[]"), int(port), client_id="egostream", request_timeout_ms=int(each_s * 1000), **given
        )
        try:
            with anyio.fail_after(each_s):
                await connection.connect()
        except (kafka_errors.KafkaError, TimeoutError, OSError) as error:
            failures.append(f"{server} {_refusal(config, error)}")
        else:
            return
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                closed = connection.close()
                if connection._protocol is not None:  # there was a connection, whose end can be waited for
                    await closed
    raise LogError(f"can't open the Kafka log: {'; '.join(failures)}")


def _refusal(config: KafkaConfig, error: BaseException) -> str:
    if isinstance(error, _REFUSED):
        return (
            f"refuses the credentials ({config.sasl_mechanism}): check {USERNAME_VARIABLE}, "
            f"{PASSWORD_VARIABLE} or the password file, and sasl_mechanism"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"shows a certificate that can't be trusted ({error.verify_message}): check ca_file and "
            "the host name"
        )
    if isinstance(error, ssl.SSLError):
        return f"does not agree on TLS ({error.reason}): check security, cert_file and key_file"
    if isinstance(error, TimeoutError):
        return (
            f"does not answer as a broker with security={config.security} would: check the address "
            "and security"
        )
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections: is the broker running, and is the port right?"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"can't be reached ({error.strerror or error}): check the address"
    wants = "the credentials" if config.security.startswith("sasl") else "the port"
    if config.security == "tls":  # a broker that wants a certificate and sees none just hangs up
        shown = config.cert_file is not None
        wants = (
            "that it trusts cert_file" if shown else "whether it wants a certificate (cert_file and key_file)"
        )
    return (
        f"ends the connection ({reason_of(error)}): check that its listener speaks "
        f"security={config.security}, and {wants}"
    )


@asynccontextmanager
async def started(config: KafkaConfig, operation: str, client: Any) -> AsyncIterator[Any]:
    """A consumer or admin client, started, and closed at the end whatever happens."""
    try:
        await retried(config, operation, client.start)  # aiokafka tries the first connection once
        yield client
    finally:
        await close(client)


async def close(client: Any) -> None:
    """Close a consumer or admin client; a broker that is away is not waited for long."""
    # A consumer that is stopped before its tasks have begun does not end well
    await cancel_shielded_checkpoint()
    is_admin = hasattr(client, "close")
    await _end(client.close if is_admin else client.stop, client._client.close)


async def _end(*steps: Callable[[], Awaitable[None]]) -> None:
    """Run the steps that close a client, each of them even if the one before went wrong. Each is a task of its
    own: aiokafka lets the cancellation of its own tasks out, which would look like one of ours."""

    async def run(step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception as error:  # of any kind: aiokafka stumbles over its own state when it is cut short
            _log.debug("a Kafka client did not close well", reason=reason_of(error))

    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
        for step in steps:
            async with anyio.create_task_group() as task:
                task.start_soon(run, step)


async def start_producer(
    config: KafkaConfig, operation: str, options: dict[str, Any], identity: tuple[int, int] | None = None
) -> Any:
    """A producer that has its id: the given one, or a new one. Raises LogError when it can't get one by
    `timeout_ms`."""

    async def start() -> Any:
        producer = aiokafka.AIOKafkaProducer(**options)
        # Else a batch whose partition has no leader, and one that waits for it, is given up after one request's time
        producer._message_accumulator._batch_ttl = config.timeout_s
        producer._request_timeout_ms = config.timeout_ms
        if identity is not None:
            producer._txn_manager.set_pid_and_epoch(*identity)
        try:
            await producer.start()
        except BaseException:
            await discard_producer(producer)
            raise
        return producer

    return await retried(config, operation, start)  # aiokafka tries the first connection once


async def discard_producer(producer: Any) -> None:
    """Close a producer at once. What it has not sent is not sent; what it has sent may or may not have
    arrived.

    `stop` alone waits until everything is delivered, which is never if the broker is away. There is no public
    way to give up, so this fails what waits in the accumulator first, by aiokafka's own means for a dead
    sender.
    """
    accumulator, sender = producer._message_accumulator, producer._sender
    if sender.sender_task is not None:  # else it would report that it was ended in the middle of something
        sender.sender_task.remove_done_callback(sender._fail_all)
        look_at(sender.sender_task)
    # aiokafka puts the failure into futures that nobody waits for; asyncio would print each. They are looked at before
    # it fails: the sender takes batches out of the accumulator even then, stumbles over the first, and that is lost.
    queued = [batch for batches in accumulator._batches.values() for batch in batches]
    waits = [
        wait
        for batch in [*queued, *accumulator._pending_batches]
        for wait in (batch._drain_waiter, batch.future)
    ]
    if producer._txn_manager is not None:
        waits += [wait for _, _, wait in producer._txn_manager._pending_txn_offsets]
    for wait in waits:
        look_at(wait)
    accumulator._pending_batches = _Pending(accumulator._pending_batches)
    accumulator.fail_all(kafka_errors.ProducerClosed())
    await _end(producer.stop, producer.client.close)
    if producer._txn_manager is not None:  # it may be a new one by now
        look_at(producer._txn_manager.wait_for_transaction_end())


class _Pending(set[Any]):
    """The batches on their way, of a producer that is given up. aiokafka takes each out once when it failed and once
    when it is to be sent again: of one that waited for its second attempt the first of these raised KeyError into
    asyncio, of one whose broker answered late the second cut the producer's end short."""

    def remove(self, batch: Any) -> None:
        self.discard(batch)


def look_at(future: Any) -> None:
    """Give up a future of aiokafka's: its failure, now or later, is not to be reported as never retrieved."""
    if future is None or future.cancelled():
        return
    if future.done():
        future.exception()
    else:
        future.add_done_callback(look_at)
