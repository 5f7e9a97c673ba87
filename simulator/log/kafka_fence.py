"""Appends that are refused once another has taken over, at the price of plain ones.

A transaction for each append would fence as well, and costs 35-75 ms. Here an owner takes a producer's id under a
transactional id, which raises that id's epoch, and writes the mark of an empty transaction into every partition that
it will append to. From that mark on a partition refuses what comes with an older epoch, plain batches included; so
the owner appends plain batches under its id, and whoever was before it can't append any more, whatever it had under
way or does later. (Tried with Kafka 4.3.1.)

A broker forgets an epoch when the newest batch under it is a day old by its stamps, which a lifelog's are at once: it
looks every ten minutes (`producer.id.expiration.check.interval.ms`) and when it starts. So an owner proves every
`PROVE_AFTER_S` by a transaction that it still is the owner, and does not send what `PROOF_LASTS_S` has passed over.
What remains: a batch of which the process had handed only a part to the network when it was stopped, or that lay in
the network, for so long that another has taken over *and* the broker has forgotten the epoch. It is then appended when
the rest arrives.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka import TopicPartition as KafkaPartition

from simulator.errors import LogError
from simulator.log.kafka_client import discard_producer, retried, start_producer
from simulator.log.kafka_config import KafkaConfig
from simulator.log.kafka_guard import Ends
from simulator.log.kafka_producer import Appender, Placed

PROVE_AFTER_S = 5.0
PROOF_LASTS_S = 60.0

ProducerIdentity = tuple[int, int]
"""A producer's id and its epoch."""


class FencedAppender(Appender):
    """Appends of one owner. `prove` raises FencedError where another has taken over."""

    def __init__(
        self,
        config: KafkaConfig,
        options: dict[str, Any],
        ends: Ends,
        identity: ProducerIdentity,
        prove: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config, options, ends, identity=identity, may_send=self._check_proof)
        self._prove = prove
        self._proved_s = time.monotonic()

    async def append(self, placed: Placed) -> None:
        """See `Appender`. Raises FencedError where another has taken over."""
        if self._failed:
            raise LogError(f"Kafka at {self._config}: can't append after an append that failed; start again")
        now_s = time.monotonic()
        if now_s - self._proved_s > PROVE_AFTER_S:
            await self._prove()
            self._proved_s = now_s
        await super().append(placed)

    def _check_proof(self) -> None:
        """Called as a batch goes out. A process that was stopped since its proof may be anywhere on its way here."""
        if time.monotonic() - self._proved_s > PROOF_LASTS_S:
            raise kafka_errors.ProducerFenced(
                "this process stood still for too long: another may have taken over"
            )


async def take_identity(
    config: KafkaConfig, options: dict[str, Any], name: str, places: Iterable[KafkaPartition]
) -> ProducerIdentity:
    """Become the one who appends to these partitions under this transactional id. Who was before is shut out of them
    when this returns. Raises LogError."""
    what = f"take over appending as {name!r}"
    mine = {
        **options,
        "transactional_id": name,
        "transaction_timeout_ms": config.transaction_timeout_ms,
        "retry_backoff_ms": 15,
    }
    marked = tuple(places)

    async def mark() -> None:
        marker = await start_producer(config, what, mine)
        try:
            await marker.begin_transaction()
            for place in marked:
                marker._txn_manager.maybe_add_partition_to_txn(place)
            await marker.commit_transaction()
        except AssertionError as error:  # this is how aiokafka says that the producer has failed before
            raise kafka_errors.KafkaError(str(error)) from error
        finally:
            await discard_producer(marker)

    await retried(config, what, mark)
    # A new id is given out only when the marks of the transaction before are in all partitions
    owner = await start_producer(config, what, mine)
    identity = (owner._txn_manager.producer_id, owner._txn_manager.producer_epoch)
    await discard_producer(owner)
    return identity
