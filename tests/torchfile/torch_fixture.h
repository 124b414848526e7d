/* Files of tests/fixtures/torch, whole or with some bytes changed. */
#pragma once
#include <stddef.h>

#include "tests/test.h"

/* The path of a fixture; valid until four more calls. */
const char *torch_fixture(const char *name);

typedef struct torch_bytes {
    unsigned char *data; /* [bytes] freed with fsdp_free() */
    size_t bytes;
} torch_bytes;

/* A fixture's bytes; fails the test if it cannot be read. */
torch_bytes torch_fixture_bytes(fsdp_test *t, const char *name);
/* Write `file` into the test's directory and return its path, valid until the next call. */
const char *torch_scratch(fsdp_test *t, const char *name, torch_bytes file);
/* The first offset of `pattern` [n] at or after `from`; fails the test if there is none. */
size_t torch_find(fsdp_test *t, torch_bytes file, size_t from, const void *pattern, size_t n);
