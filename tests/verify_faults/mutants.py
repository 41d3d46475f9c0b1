"""The mutants: what is wrong with torch, and the check that must name it.

Others may see it too: the ration sees most of them.
"""

from verify_faults.arithmetic import FUNCTIONS, ORDER, PRODUCTS
from verify_faults.mutant import Mutant
from verify_faults.programs import MACHINE, NETWORKS

MUTANTS = (*PRODUCTS, *FUNCTIONS, *ORDER, *NETWORKS, *MACHINE)

__all__ = ["MUTANTS", "Mutant"]
