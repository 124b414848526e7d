/* Files of tests/fixtures/torch, whole or with some bytes changed. */
#pragma once
#include <stddef.h>

#include "tests/test.h"

/* The path of a fixture; valid until the fourth call from here. */
const char *torch_fixture(const char *name);

typedef struct torch_bytes {
    unsigned char *data; /* [bytes] ended by fsdp_free() */
    size_t bytes;
} torch_bytes;

/* A fixture's bytes; fails the test if it cannot be read. */
torch_bytes torch_fixture_bytes(fsdp_test *t, const char *name);
/* Write `file` into the test's directory; the path, valid until the next call. */
const char *torch_scratch(fsdp_test *t, const char *name, torch_bytes file);
/* The first place of `pattern` [n] at or behind `from`; fails the test if there is none. */
size_t torch_find(fsdp_test *t, torch_bytes file, size_t from, const void *pattern, size_t n);
