"""The libraries of ``benchmarks/peers.py``: each evaluates the same problem in its own way.

Nothing is imported before a worker is made: each runs in an environment that has its library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# GPy adds the jitter to K_uu as it is. Its own 1e-8 is below the rounding errors of A here, where
# ours would raise it and the two would no longer compute the same function: 1e-6 for both.
VARIANCE, GAMMA, BETA, JITTER, LATENT_VARIANCE = 1.0, 4.0, 10.0, 1e-6, 0.05

Report = dict[str, Any]


def problem(N: int, U: int, Q: int, P: int) -> tuple[Any, Any, Any]:
    """Return Y (N, P), standardized, its Q principal components X, and U of them as Z."""
    import numpy as np

    rng = np.random.default_rng(0)
    latent = rng.normal(size=(N, Q))
    # A smooth function of the latent points: random Fourier features.
    waves = np.cos(latent @ rng.normal(size=(Q, 200)) + rng.uniform(0, 2 * np.pi, 200))
    Y = waves @ rng.normal(size=(200, P)) / 10.0 + 0.3 * rng.normal(size=(N, P))
    Y = (Y - Y.mean(0)) / Y.std(0)
    X = np.linalg.svd(Y, full_matrices=False)[0][:, :Q] * np.sqrt(N)
    return Y, X, X[rng.choice(N, U, replace=False)]


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the CPU time of a call, and its result.

    With one thread that is the time it takes on a machine with nothing else to do; beside other
    work the wall clock would also count that.
    """
    began = time.process_time()
    result = function(*arguments)
    return time.process_time() - began, result


class Worker:
    """Worker for one library."""

    #: What the number is, for readers of the results.
    description = ""
    packages: tuple[str, ...] = ()

    def __init__(self, Y: Any, X: Any, Z: Any) -> None:
        self.Y, self.X, self.Z = Y, X, Z

    def move(self, shift: float) -> None:
        """Make X + shift the next point, so that no result can be cached."""
        self.next = self.X + shift

    def evaluate(self) -> None:
        """Compute the bound and its gradient there: what is timed."""
        raise NotImplementedError

    def result(self) -> tuple[float, dict[str, Any]]:
        """Return what was computed, the gradient as far as it is compared."""
        raise NotImplementedError

    def optimize(self, iterations: int) -> Report:
        """Run the library's own optimizer from the start."""
        raise NotImplementedError

    def reach(self, level: float) -> Report:
        """Run the library's own optimizer until it has reached a bound."""
        raise NotImplementedError


class Ours(Worker):
    """The data part of the KL-corrected bound at M = 1."""

    description = "KL-corrected bound, M=1 (DTC)"
    packages = ("jax", "jaxlib")
    trace_term = False

    def __init__(self, Y: Any, X: Any, Z: Any) -> None:
        super().__init__(Y, X, Z)
        import jax
        import jax.numpy as jnp
        import numpy as np

        from sgpmic._runtime import numerics
        from sgpmic.kernels import RBF, like, stack
        from sgpmic.model.bound import Mappings, collapsed_term, data_term
        from sgpmic.model.row_pass.sums import statistics
        from sgpmic.model.rows import make_rows, pad_rows

        self.numerics = numerics
        with numerics():
            # GPy's jitter is our white part. A bias of exactly 0 is not for users; here it makes
            # the two kernels the same.
            kernel = stack([RBF(variance=VARIANCE, gamma=GAMMA, bias=1.0, white=JITTER)])
            kernel = like(kernel, bias=np.zeros(1))
            rows = make_rows(Y)
            T = rows.flat_weight[:, None]
            N, P = Y.shape

            def bound(kernel: Any, Z: Any, beta: Any, X: Any, rows: Any, T: Any) -> Any:
                return data_term(Mappings(kernel, Z, beta), X, T, rows, 0.0)

            def titsias(kernel: Any, Z: Any, beta: Any, X: Any, rows: Any, T: Any) -> Any:
                phi, psi = statistics(kernel, Z, X, T, rows.Y, None)
                one = jax.tree.map(lambda leaf: leaf[0], kernel)
                K_uu = one.gram(Z)
                fit = collapsed_term(K_uu, phi[0], psi[0], beta, 0.0)
                L = jnp.linalg.cholesky(K_uu)
                explained = jnp.trace(jax.scipy.linalg.cho_solve((L, True), phi[0]))
                trace = 0.5 * beta * P * (N * one.variance - explained)
                squares = jnp.sum(rows.norm2)
                normalizer = 0.5 * N * P * jnp.log(beta / (2.0 * jnp.pi))
                return normalizer - 0.5 * beta * squares + fit - trace

            self.bound = titsias if self.trace_term else bound
            self.gradient = jax.jit(jax.value_and_grad(self.bound, argnums=(0, 1, 2, 3)))
            self.points = jnp.asarray(pad_rows(X, rows.n_padded))
            self.start = (kernel, jnp.asarray(Z), jnp.asarray(BETA))
            self.constants = (rows, T)
            self.jax = jax

    def move(self, shift: float) -> None:
        with self.numerics():
            self.next = self.jax.block_until_ready(self.points + shift)

    def evaluate(self) -> None:
        with self.numerics():
            self.found = self.jax.block_until_ready(
                self.gradient(*self.start, self.next, *self.constants)
            )

    def result(self) -> tuple[float, dict[str, Any]]:
        with self.numerics():
            value, (d_kernel, dZ, d_beta, dX) = self.found
            return float(value), {
                "variance": d_kernel.variance[0],
                "gamma": d_kernel.gamma[0],
                "beta": d_beta,
                "Z": dZ,
                "X": dX[: len(self.X)],
            }


class OursWithTrace(Ours):
    """The same less the trace term: what GPy's SparseGPLVM maximizes."""

    description = "Titsias' bound by our code, M=1: the same function as gpy"
    trace_term = True

    def _minimizer(self, optimizer: str) -> Callable[[int], Any]:
        """Return the search with so many steps, compiled once, over X, Z, log θ and log β."""
        import jax.numpy as jnp

        from sgpmic.kernels import like
        from sgpmic.learning.optimizers import lbfgs
        from sgpmic.learning.scg import scg

        kernel: Any
        kernel, Z, beta = self.start
        minimizers: dict[str, Any] = {"scg": scg, "lbfgs": lbfgs}
        minimize = minimizers[optimizer]
        free = jnp.log(jnp.stack([kernel.variance[0], kernel.gamma[0], beta]))

        def search(steps: Any, X: Any, Z: Any, free: Any, rows: Any, T: Any) -> Any:
            def loss(point: Any) -> Any:
                X, Z, free = point
                variance, gamma, beta = jnp.exp(free)
                moved = like(kernel, variance=variance[None], gamma=gamma[None])
                return -self.bound(moved, Z, beta, X, rows, T)

            return minimize(self.jax.value_and_grad(loss), (X, Z, free), max_steps=steps)

        compiled = self.jax.jit(search)

        def run(steps: int) -> Any:
            result = compiled(jnp.asarray(steps), self.points, Z, free, *self.constants)
            return self.jax.block_until_ready(result)

        return run

    def reach(self, level: float) -> Report:
        report: Report = {}
        with self.numerics():
            for optimizer in ("scg", "lbfgs"):
                run = self._minimizer(optimizer)
                compiling = timed(lambda run=run: run(1))[0]
                # The fewest steps that reach it: double, then halve the gap.
                low, high = 0, 8
                while -float(run(high).value) < level and high < 4096:
                    low, high = high, 2 * high
                while high - low > 1:
                    middle = (low + high) // 2
                    if -float(run(middle).value) < level:
                        low = middle
                    else:
                        high = middle
                seconds, result = min(
                    (timed(lambda run=run, steps=high: run(steps)) for _ in range(3)),
                    key=lambda pair: pair[0],
                )
                report[optimizer] = {
                    "seconds": seconds,
                    "steps": high,
                    "evaluations": int(result.evaluations),
                    "bound": -float(result.value),
                    "compiling": compiling,
                }
        return report


class GPy(Worker):
    """GPy's SparseGPLVM."""

    description = "GPy SparseGPLVM, VarDTC (Titsias' bound)"
    packages = ("gpy", "numpy", "scipy")

    def __init__(self, Y: Any, X: Any, Z: Any) -> None:
        super().__init__(Y, X, Z)
        self.model = self.make()

    def make(self) -> Any:
        import GPy
        import numpy as np

        Q = self.X.shape[1]
        kernel = GPy.kern.RBF(Q, variance=VARIANCE, lengthscale=GAMMA**-0.5)
        model = GPy.models.SparseGPLVM(
            self.Y, Q, X=self.X.copy(), kernel=kernel, num_inducing=len(self.Z)
        )
        model.Z[:] = np.asarray(self.Z)
        model.likelihood.variance = 1.0 / BETA
        model.inference_method.const_jitter = JITTER
        return model

    def evaluate(self) -> None:
        self.model.X[:] = self.next  # computes everything

    def result(self) -> tuple[float, dict[str, Any]]:
        kernel, noise = self.model.kern, self.model.likelihood.variance
        return self.model.log_likelihood().item(), {
            "variance": kernel.variance.gradient[0],
            "gamma": kernel.lengthscale.gradient[0] * -0.5 * GAMMA**-1.5,
            "beta": -noise.gradient[0] / BETA**2,
            "Z": self.model.Z.gradient,
            "X": self.model.X.gradient,
        }

    def optimize(self, iterations: int) -> Report:
        # The best of three, as ours.
        runs = [timed(self._optimized, iterations) for _ in range(3)]
        seconds, bound = min(runs)
        return {"seconds": seconds, "iterations": iterations, "bound": bound}

    def _optimized(self, iterations: int) -> float:
        self.model = self.make()
        self.model.optimize("lbfgsb", max_iters=iterations, messages=False)
        return self.model.log_likelihood().item()


class GPyBayesian(Worker):
    """GPy's BayesianGPLVM."""

    description = "GPy BayesianGPLVM (with a variance of X)"
    packages = ("gpy", "numpy", "scipy")

    def __init__(self, Y: Any, X: Any, Z: Any) -> None:
        super().__init__(Y, X, Z)
        import GPy
        import numpy as np

        Q = X.shape[1]
        kernel = GPy.kern.RBF(Q, variance=VARIANCE, lengthscale=np.full(Q, GAMMA**-0.5), ARD=True)
        variance = np.full(X.shape, LATENT_VARIANCE)
        self.model = GPy.models.BayesianGPLVM(
            Y, Q, X=X.copy(), X_variance=variance, Z=Z.copy(), kernel=kernel, num_inducing=len(Z)
        )
        self.model.likelihood.variance = 1.0 / BETA

    def evaluate(self) -> None:
        self.model.X.mean[:] = self.next  # computes everything

    def result(self) -> tuple[float, dict[str, Any]]:
        return self.model.log_likelihood().item(), {"X": self.model.X.mean.gradient}


class GPflowBayesian(Worker):
    """GPflow's BayesianGPLVM."""

    description = "GPflow BayesianGPLVM (with a variance of X)"
    packages = ("gpflow", "tensorflow_cpu", "numpy")

    def __init__(self, Y: Any, X: Any, Z: Any) -> None:
        super().__init__(Y, X, Z)
        import gpflow
        import numpy as np
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        Q = X.shape[1]
        kernel = gpflow.kernels.SquaredExponential(
            variance=VARIANCE, lengthscales=np.full(Q, GAMMA**-0.5)
        )
        self.model = gpflow.models.BayesianGPLVM(
            tf.convert_to_tensor(Y),
            X_data_mean=tf.convert_to_tensor(X),
            X_data_var=tf.fill(X.shape, np.float64(LATENT_VARIANCE)),
            kernel=kernel,
            inducing_variable=Z,
        )
        self.model.likelihood.variance.assign(1.0 / BETA)
        self.start = tf.convert_to_tensor(X)
        names = self.model.trainable_variables

        @tf.function  # type: ignore[untyped-decorator,unused-ignore]
        def evaluate() -> Any:
            with tf.GradientTape() as tape:
                bound = self.model.maximum_log_likelihood_objective()
            return bound, tape.gradient(bound, names)

        self.compiled = evaluate

    def move(self, shift: float) -> None:
        self.model.X_data_mean.assign(self.start + shift)

    def evaluate(self) -> None:
        self.bound, gradients = self.compiled()
        for gradient in gradients:
            gradient.numpy()

    def result(self) -> tuple[float, dict[str, Any]]:
        return float(self.bound), {}


class GPyTorchBayesian(Worker):
    """GPyTorch's BayesianGPLVM."""

    description = "GPyTorch BayesianGPLVM, SVGP, one sample of X (with a variance of X)"
    packages = ("gpytorch", "torch")

    def __init__(self, Y: Any, X: Any, Z: Any) -> None:
        super().__init__(Y, X, Z)
        import gpytorch
        import torch
        from gpytorch.models.gplvm.bayesian_gplvm import BayesianGPLVM
        from gpytorch.models.gplvm.latent_variable import VariationalLatentVariable

        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(0)
        (N, P), (U, Q) = Y.shape, Z.shape
        prior = gpytorch.priors.NormalPrior(torch.zeros(N, Q), torch.ones(N, Q))
        latent = VariationalLatentVariable(N, P, Q, torch.tensor(X), prior)

        class Model(BayesianGPLVM):
            def __init__(self) -> None:
                batch = torch.Size([P])
                q_u = gpytorch.variational.CholeskyVariationalDistribution(U, batch_shape=batch)
                # Inducing inputs and kernel shared by all features, as in ours.
                strategy = gpytorch.variational.VariationalStrategy(
                    self, torch.tensor(Z), q_u, learn_inducing_locations=True
                )
                super().__init__(latent, strategy)
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

            def forward(self, X: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(
                    self.mean_module(X), self.covar_module(X)
                )

        self.model = Model()
        self.model.covar_module.outputscale = VARIANCE
        self.model.covar_module.base_kernel.lengthscale = GAMMA**-0.5
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.likelihood.noise = 1.0 / BETA
        self.mll = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=N)
        self.parameters = [*self.model.parameters(), *self.likelihood.parameters()]
        self.target = torch.tensor(Y).T
        self.torch = torch
        self.model.train()

    def move(self, shift: float) -> None:
        with self.torch.no_grad():
            self.model.X.q_mu.copy_(self.torch.tensor(self.X + shift))

    def evaluate(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        loss = -self.mll(self.model(self.model.sample_latent_variable()), self.target).sum()
        loss.backward()
        self.bound = -float(loss) * len(self.Y)

    def result(self) -> tuple[float, dict[str, Any]]:
        return self.bound, {}


WORKERS: dict[str, type[Worker]] = {
    "ours": Ours,
    "ours, trace term": OursWithTrace,
    "gpy": GPy,
    "gpy-bayesian": GPyBayesian,
    "gpflow-bayesian": GPflowBayesian,
    "gpytorch-bayesian": GPyTorchBayesian,
}
