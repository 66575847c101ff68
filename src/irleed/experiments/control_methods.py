"""The methods of the control experiment."""

import dataclasses
from typing import Any, Literal

from irleed.algorithm import AbstractOffline
from irleed.baselines.bc import BehaviourCloning
from irleed.baselines.ileed import Ileed
from irleed.baselines.sqil import Sqil
from irleed.iq.agent import AbstractAgent
from irleed.iq.online import OnlineSoftQ
from irleed.iq.soft_q import SoftQ

MethodName = Literal[
    "irleed", "iq", "irleed_survival", "iq_survival", "ileed", "bc", "bc_best",
    "irleed_online", "iq_online", "irleed_survival_online", "iq_survival_online", "sqil",
    "irleed_paper", "iq_paper",
]  # fmt: skip
EQUALS: dict[str, Any] = {"learn_precision": False, "learn_bias": False}  # what makes IQ-Learn of IRLEED
METHODS: dict[str, AbstractOffline | AbstractAgent] = {
    "irleed": SoftQ(),
    "iq": SoftQ(**EQUALS),
    "irleed_survival": SoftQ.survival(),
    "iq_survival": SoftQ.survival(**EQUALS),
    "ileed": Ileed(),
    "bc": BehaviourCloning(),
    "bc_best": BehaviourCloning(),
    "irleed_online": OnlineSoftQ(),
    "iq_online": OnlineSoftQ(learner=dataclasses.replace(OnlineSoftQ().learner, **EQUALS)),
    "irleed_survival_online": OnlineSoftQ.survival(),
    "iq_survival_online": OnlineSoftQ.survival(**EQUALS),
    "sqil": Sqil(),
    "irleed_paper": SoftQ.paper(),
    "iq_paper": SoftQ.paper(**EQUALS),
}
ORACLES = ("bc_best",)  # learn from the best third of the episodes by their true returns, which nobody else sees
