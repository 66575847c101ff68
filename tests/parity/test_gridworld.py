"""The paper's protocol gives the paper's figures: minutes, so marked slow."""

import pytest

from irleed.experiments import published_gridworld
from irleed.experiments.gridworld import GridworldConfig, summarise, sweep

SEEDS, BOUND, LEAST_CORRELATION = 5, 0.05, 0.9


@pytest.mark.slow
def test_published_protocol_reproduces_the_published_returns(tmp_path):
    """All 121 settings: both means, and cell by cell what is easy and what is hard."""
    known = published_gridworld()
    assert known.irl.mean() == pytest.approx(0.644, abs=5e-4)
    assert known.irleed.mean() == pytest.approx(0.776, abs=5e-4)
    config = GridworldConfig(out=tmp_path, estimator="published", seeds=SEEDS)
    lanes, _ = sweep(config, lambda done, of: None)
    found = summarise(config, lanes)
    assert found["maxent_published_greedy"] == pytest.approx(known.irl.mean(), abs=BOUND)
    assert found["irleed_published_greedy"] == pytest.approx(known.irleed.mean(), abs=BOUND)
    assert found["correlation_with_paper_maxent_published"] >= LEAST_CORRELATION
    assert found["correlation_with_paper_irleed_published"] >= LEAST_CORRELATION
