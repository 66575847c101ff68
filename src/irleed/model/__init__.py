"""The paper's model: demonstrators with a precision and a bias, action distributions, networks, expertise."""
