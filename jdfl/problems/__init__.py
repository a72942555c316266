"""What the nodes learn: objectives over stacked data, ways to split examples, data sets, centralised optima."""

from jdfl.problems import partition
from jdfl.problems.averaging import Averaging, averaging
from jdfl.problems.base import Problem, check_problem
from jdfl.problems.cifar import read_cifar10
from jdfl.problems.classification import classification, holdout
from jdfl.problems.dataset import Dataset
from jdfl.problems.datasets import NAMES, data_folder, load
from jdfl.problems.drawn import DrawnRegression, drawn_regression
from jdfl.problems.example1 import example1
from jdfl.problems.generated import epsilon_like, realsim_like
from jdfl.problems.images import Images, read_idx, read_mnist
from jdfl.problems.least_squares import linear_regression
from jdfl.problems.linear import LinearRegression
from jdfl.problems.logistic import LogisticRegression, SoftmaxRegression, logistic_regression, softmax_regression
from jdfl.problems.neural import NeuralProblem
from jdfl.problems.neural_classification import neural_classification
from jdfl.problems.optimum import Optimum, base_rate, optimum, sparse_optimum, value_at, value_at_truth
from jdfl.problems.readers import read_libsvm, read_qsar
from jdfl.problems.sparse import SparseLogisticRegression, sparse_logistic_regression

__all__ = [
    "NAMES",
    "Averaging",
    "Dataset",
    "DrawnRegression",
    "Images",
    "LinearRegression",
    "LogisticRegression",
    "NeuralProblem",
    "Optimum",
    "Problem",
    "SoftmaxRegression",
    "SparseLogisticRegression",
    "averaging",
    "base_rate",
    "check_problem",
    "classification",
    "data_folder",
    "drawn_regression",
    "epsilon_like",
    "example1",
    "holdout",
    "linear_regression",
    "load",
    "logistic_regression",
    "neural_classification",
    "optimum",
    "partition",
    "read_cifar10",
    "read_idx",
    "read_libsvm",
    "read_mnist",
    "read_qsar",
    "realsim_like",
    "softmax_regression",
    "sparse_logistic_regression",
    "sparse_optimum",
    "value_at",
    "value_at_truth",
]
