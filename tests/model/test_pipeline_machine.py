"""Random rows, crashes, clocks and answers keep the promises of the delivery, from the log to the receiver."""

from __future__ import annotations

from hypothesis import settings

from tests.model.pipeline_machine import PipelineMachine

TestPipeline = PipelineMachine.TestCase
TestPipeline.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
