/* What json.c and json_write.c share. */
#pragma once
#include <jansson.h>

#include "src/base/json.h"

struct fsdp_json {
    char *name;   /* the name of the document in errors */
    json_t *root; /* an object or an array */
    /* The first failure of a setter; the functions that print or write the document return it. */
    fsdp_status status;
};

/* jansson supports neither integers beyond 64 bits nor NaN and Infinity. Such a number is stored as
 * a string: a NUL followed by the literal. No other string contains a NUL. Return the literal if
 * `value` is such a number, else NULL. */
const char *fsdp_json_raw_number(const json_t *value);
