/* What json.c and json_write.c share. */
#pragma once
#include <jansson.h>

#include "src/base/json.h"

struct fsdp_json {
    char *name;         /* what errors call it */
    json_t *root;       /* an object or an array */
    fsdp_status status; /* first failure while building; writing returns it */
};

/* jansson knows neither integers beyond 64 bits nor NaN and Infinity. They are kept as strings
 * that open with a NUL, which strings read from text cannot: the literal follows. */
const char *fsdp_json_raw_number(const json_t *value); /* the literal, or NULL */
