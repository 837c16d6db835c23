"""Shares of variance of the coordinates of largest variance."""

import math


def outlier_variance_top1(Z):
    return outlier_variance(Z, 1)


def outlier_variance_top3(Z):
    return outlier_variance(Z, 3)


def outlier_variance(Z, top):
    variances = []
    for column in zip(*Z, strict=True):
        mean = math.fsum(column) / len(column)
        variances.append(math.fsum((value - mean) ** 2 for value in column) / len(column))
    variances.sort(reverse=True)
    return math.fsum(variances[:top]) / math.fsum(variances)
