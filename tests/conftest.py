"""What several folders of tests share."""

from collections.abc import Iterator

import pytest

from tests import servers


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """The address of a server that speaks S3; each test takes a bucket of its own."""
    with servers.object_store() as address:
        yield address
