"""What the nodes learn: objectives over stacked data, ways to split examples, data sets, centralised optima."""

from jdfl.problems import partition
from jdfl.problems.base import Problem, check_problem
from jdfl.problems.classification import classification, holdout
from jdfl.problems.datasets import NAMES, Dataset, data_folder, load
from jdfl.problems.linear import LinearRegression, example1, linear_regression
from jdfl.problems.logistic import LogisticRegression, SoftmaxRegression, logistic_regression, softmax_regression
from jdfl.problems.optimum import Optimum, base_rate, optimum, sparse_optimum, value_at, value_at_truth
from jdfl.problems.readers import read_libsvm, read_qsar

__all__ = [
    "NAMES",
    "Dataset",
    "LinearRegression",
    "LogisticRegression",
    "Optimum",
    "Problem",
    "SoftmaxRegression",
    "base_rate",
    "check_problem",
    "classification",
    "data_folder",
    "example1",
    "holdout",
    "linear_regression",
    "load",
    "logistic_regression",
    "optimum",
    "partition",
    "read_libsvm",
    "read_qsar",
    "softmax_regression",
    "sparse_optimum",
    "value_at",
    "value_at_truth",
]
