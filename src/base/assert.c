/* Reports a failed assertion and aborts. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/assert.h"

void fsdp_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "%s:%d: internal error: %s does not hold\n", file, line, expression);
    abort();
}
