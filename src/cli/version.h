/* `fsdp --version`: how this program was built. */
#pragma once
#include <stdio.h>

/* Prints the version, the compiler, the instruction sets of this CPU, and the libraries found when
 * it was built. */
void fsdp_print_version(FILE *to);
