"""Exactly-once writes of one partition number: records and a group's offsets in one Kafka transaction.

The transactional id is `<group>-<number>`. Whoever becomes the owner of that partition number makes a new
producer under it before it reads the committed offsets. That ends what the former owner had open and shuts it
out for good, even if it has not noticed its loss.

Every transaction commits its offsets with a token of its own. If the client does not learn how a transaction
ended, a new producer under the same id ends it one way or the other, and the token in the committed offsets
tells which. It also tells whether another owner was at work meanwhile, whom that new producer has shut out: what
this one had to write may be there already.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import aiokafka.errors as kafka_errors
import anyio
from aiokafka import TopicPartition as KafkaPartition

from simulator.errors import FencedError, LogError
from simulator.log.kafka_admin import KafkaAdmin
from simulator.log.kafka_client import discard_producer, log_error, may_pass, start_producer
from simulator.log.kafka_config import KafkaConfig
from simulator.log.kafka_producer import BATCH_BYTES, Placed, build_batches, send_batches
from simulator.log.protocol import TopicPartition

# The broker answers a transaction that follows closely on another with "not yet": the default of 100 ms is
# then most of a transaction's time.
_RETRY_BACKOFF_MS = 15
_SHOWN_WITHIN_S = 2.0
_LOOK_S = 0.05
_SPOILT = (
    AssertionError,
    kafka_errors.IllegalOperation,
    kafka_errors.InvalidTxnState,
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.UnknownProducerId,
)
"""A producer whose state is not the broker's: a new one begins with none."""


class Transactor:
    """The transactions of one owner of one partition number of a group. One at a time."""

    def __init__(
        self, config: KafkaConfig, options: dict[str, Any], admin: KafkaAdmin, group: str, number: int
    ) -> None:
        self.number = number
        self.usable = False
        """Whether the owner may go on; if not, it must take its partitions over anew."""
        self.tokens: dict[TopicPartition, str] = {}
        """What the offsets were last committed with: by this owner or, before its first time, by the one before."""
        self._config = config
        self._admin = admin
        self._group = group
        self._options = {
            **options,
            "transactional_id": f"{config.prefix}{group}-{number}",
            "transaction_timeout_ms": config.transaction_timeout_ms,
            "retry_backoff_ms": _RETRY_BACKOFF_MS,
            "max_batch_size": BATCH_BYTES,
            "compression_type": None if config.compression == "none" else config.compression,
        }
        self._producer: Any = None
        self._ending = False

    async def start(self) -> None:
        """Shut out any former owner, and end what it had open."""
        what = f"start transactions of group {self._group!r}"
        self._producer = await start_producer(self._config, what, self._options)
        self.usable = True

    async def aclose(self) -> None:
        """Let go. What is open is ended by the next owner, or by the broker after
        `transaction_timeout_ms`."""
        self.usable = False
        producer, self._producer = self._producer, None
        if producer is not None:
            await discard_producer(producer)

    async def run(self, placed: Placed, offsets: Mapping[TopicPartition, int]) -> None:
        """One transaction, begun and ended even if the caller is cancelled. Raises FencedError if another has
        taken over, LogError if it can't be done by `timeout_ms`; nothing of it is visible then, unless the
        message says that the outcome is unknown."""
        if not self.usable:
            raise FencedError(f"group {self._group!r}: partition {self.number} is not this consumer's now")
        token = f"{time.time_ns():016x}-{secrets.token_hex(4)}"
        deadline_s = anyio.current_time() + self._config.timeout_s
        with anyio.CancelScope(shield=True):
            while True:
                error = await self._attempt(placed, offsets, token, deadline_s)
                if error is None or not await self._again(error, offsets, token, deadline_s):
                    self.tokens.update(dict.fromkeys(offsets, token))
                    self._admin.expect(self._group, dict.fromkeys(offsets, token))
                    return

    async def _attempt(
        self, placed: Placed, offsets: Mapping[TopicPartition, int], token: str, deadline_s: float
    ) -> BaseException | None:
        producer, prefix = self._producer, self._config.prefix
        finished = False
        self._ending = False

        async def send_offsets() -> None:
            if offsets:
                positions = {
                    KafkaPartition(prefix + tp.topic, tp.partition): (offset, token)
                    for tp, offset in offsets.items()
                }
                await producer.send_offsets_to_transaction(positions, prefix + self._group)

        try:
            with anyio.fail_at(deadline_s):
                batches = await build_batches(producer, placed)
                await producer.begin_transaction()
                # The offsets go out while the batches are under way: a transaction is mostly waiting
                if failed := await send_batches(producer, prefix, batches, send_offsets):
                    return next(iter(failed.values()))
                self._ending = True
                await producer.commit_transaction()
            finished = True
        except (
            kafka_errors.KafkaError,
            kafka_errors.IllegalOperation,
            AssertionError,
            TimeoutError,
        ) as error:
            return error  # an assertion is how aiokafka says that this producer has failed before
        except LogError:  # of `build_batches`: nothing has begun
            finished = True
            raise
        finally:
            if not finished:
                await self.aclose()
        return None

    async def _again(
        self, error: BaseException, offsets: Mapping[TopicPartition, int], token: str, deadline_s: float
    ) -> bool:
        """After a failed attempt, whose producer is gone: whether to try again. False: it did succeed."""
        what = f"write a transaction of group {self._group!r}"
        described = log_error(self._config, what, error)
        if isinstance(described, FencedError):
            raise described from error
        unknown = LogError(f"{described}; whether this transaction took place is unknown")
        try:
            await self.start()
            if await self._has_taken_place(offsets, token):
                return False
        except FencedError:
            await self.aclose()
            raise
        except LogError as failure:
            await self.aclose()
            raise (unknown if self._ending else described) from failure
        if not may_pass(error, *_SPOILT) or anyio.current_time() > deadline_s:
            raise described from error
        return True

    async def _has_taken_place(self, offsets: Mapping[TopicPartition, int], token: str) -> bool:
        """Whether the failed attempt did succeed. Raises FencedError where another has committed since this owner
        did, LogError if it can't be told."""
        if self._ending and not offsets:
            raise LogError("it committed no offsets, which would tell")
        # Kafka shows a transaction's offsets a moment after it has ended: too short a look would do it twice
        looked_until_s = anyio.current_time() + (_SHOWN_WITHIN_S if self._ending else 0.0)
        while True:
            found = await self._admin.committed(self._group, offsets)
            if any(committed.token == token for committed in found.values()):
                return True
            if any(committed.token != self.tokens.get(tp) for tp, committed in found.items()):
                raise FencedError(
                    f"group {self._group!r}: partition {self.number} was another consumer's in between"
                )
            if anyio.current_time() >= looked_until_s:
                return False
            await anyio.sleep(_LOOK_S)
