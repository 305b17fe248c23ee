"""Alembic environment: the models as target, one asyncpg connection, or SQL on paper with ``--sql``."""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection, event

from strata.platform import migrations

config = context.config
target_metadata = migrations.metadata()


def run_migrations_offline() -> None:
    context.configure(url="postgresql://", target_metadata=target_metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def bound_lock_waits(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{migrations.LOCK_TIMEOUT}'")


def run_sync(connection: Connection) -> None:
    event.listen(connection, "begin", bound_lock_waits)
    context.configure(
        connection=connection,
        target_metadata=target_metadata,
        transaction_per_migration=True,
        compare_server_default=False,
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_migrations_online() -> None:
    engine = migrations.engine(config.attributes["dsn"])
    async with engine.connect() as connection:
        await connection.run_sync(run_sync)
    await engine.dispose()


if context.is_offline_mode():
    run_migrations_offline()
elif (given := config.attributes.get("connection")) is not None:
    run_sync(given)
else:
    asyncio.run(run_migrations_online())
