from lanewise.conv import vendor


def launch(precision, problem, first, second, bias):
    if problem.direction == "forward":
        return vendor.forward(first, second, bias, problem, precision)
    return getattr(vendor, problem.direction)(first, second, problem, precision)
