"""Notify the model of background jobs that have ended."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..loop.interface import Feature
from ..session.entries import User

if TYPE_CHECKING:
    from ...tools.job import BackgroundJob

ENDED = (
    "{id} has ended after {seconds} s: {status}.",
    ' {Job} with action "read" gives its output.',
)


class JobsFeature(Feature):
    """Records the ends of jobs, except ends that the model already saw through the tool Job."""

    async def before_call(self) -> None:
        """Record a line for each job that has ended. Raises RecordError."""
        jobs: Mapping[str, BackgroundJob] = self.session.context.jobs
        for job in jobs.values():
            if job.process.running or job.end_is_known:
                continue
            text = self.session.context.offered.say(
                *ENDED, id=job.id, seconds=f"{job.seconds:.0f}", status=job.status
            )
            self.session.record(User(content=text, source="notice", details=job.details()))
            job.end_is_known = True
