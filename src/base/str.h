/* A growable string. Initialize with {0}. Appending does not report errors: if an append runs out
 * of memory, fsdp_str_take() reports it. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_str {
    char *data; /* NUL-terminated, NULL while empty; owned */
    size_t len, cap;
    bool failed;
} fsdp_str;

void fsdp_str_append(fsdp_str *s, const char *bytes, size_t n);
FSDP_PRINTF(2, 3) void fsdp_str_printf(fsdp_str *s, const char *format, ...);
/* Return the text and make `s` empty. The caller owns the text and frees it with fsdp_free(). If an
 * append ran out of memory, set the error message and return NULL. */
char *fsdp_str_take(fsdp_str *s);
void fsdp_str_fini(fsdp_str *s);

/* The unused remainder of a buffer of fixed size: `left` bytes at `at`, including the final NUL.
 * Text that is longer than this remainder is truncated. */
typedef struct fsdp_text {
    char *at;
    size_t left;
} fsdp_text;

FSDP_PRINTF(2, 3) void fsdp_text_printf(fsdp_text *t, const char *format, ...);

/* Append a copy of `name` to a growing list. The list *names has *n names, which it owns, and a
 * capacity of *cap names. */
FSDP_MUST_CHECK fsdp_status fsdp_names_add(char ***names, size_t *n, size_t *cap, const char *name);
void fsdp_names_free(char **names, size_t n);

bool fsdp_ends_with(const char *text, const char *end);
