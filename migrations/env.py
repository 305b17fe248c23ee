"""Alembic environment: the models as target, one asyncpg connection, or SQL on paper with ``--sql``."""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection, pool
from sqlalchemy.ext.asyncio import create_async_engine

from strata.platform.migrations import metadata, sqlalchemy_url

config = context.config
target_metadata = metadata()


def run_migrations_offline() -> None:
    context.configure(url="postgresql://", target_metadata=target_metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def run_sync(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=target_metadata,
        transaction_per_migration=True,
        compare_server_default=False,
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_migrations_online() -> None:
    engine = create_async_engine(sqlalchemy_url(config.attributes["dsn"]), poolclass=pool.NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(run_sync)
    await engine.dispose()


if context.is_offline_mode():
    run_migrations_offline()
elif (given := config.attributes.get("connection")) is not None:
    run_sync(given)
else:
    asyncio.run(run_migrations_online())
