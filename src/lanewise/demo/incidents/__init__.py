"""The two incidents that this project answers, replayed on a CPU: `lanewise demo --incident wavefront|window`."""

from lanewise.demo.incidents.prediction import Prediction, came_true

__all__ = ["Prediction", "came_true"]
