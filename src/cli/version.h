/* `fsdp --version`: what this program is made of. */
#pragma once
#include <stdio.h>

/* Version, compiler, instruction sets of this CPU, libraries found when it was built. */
void fsdp_print_version(FILE *to);
