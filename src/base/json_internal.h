/* Declarations that json.c and json_write.c share. */
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
 * a string: a NUL followed by the literal. A string that begins with a NUL is stored with one more
 * NUL, so it cannot be mistaken for such a number. Return the literal if `value` is such a number,
 * else NULL. */
const char *fsdp_json_raw_number(const json_t *value);
/* Return the bytes [length] of `value`, a string that does not represent a number (see
 * fsdp_json_raw_number()). A NUL follows the bytes. */
const char *fsdp_json_string(const json_t *value, size_t *length);
