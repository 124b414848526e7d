/* A growing text. Start with {0}; appending never fails at once: out of memory is remembered and
 * told by fsdp_str_take. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_str {
    char *data; /* NUL-terminated, NULL while empty; owned */
    size_t len, cap;
    bool failed;
} fsdp_str;

void fsdp_str_append(fsdp_str *s, const char *bytes, size_t n);
FSDP_PRINTF(2, 3) void fsdp_str_printf(fsdp_str *s, const char *format, ...);
/* The text, owned by the caller (fsdp_free); `s` is empty again. NULL with an error if memory ran
 * out on the way. */
char *fsdp_str_take(fsdp_str *s);
void fsdp_str_fini(fsdp_str *s);

/* What is left of a buffer of fixed size, `left` bytes with the final NUL; what does not fit is cut
 * off. */
typedef struct fsdp_text {
    char *at;
    size_t left;
} fsdp_text;

FSDP_PRINTF(2, 3) void fsdp_text_printf(fsdp_text *t, const char *format, ...);

/* Names in a list that grows, each owned: *names [*n], room for *cap. */
FSDP_MUST_CHECK fsdp_status fsdp_names_add(char ***names, size_t *n, size_t *cap, const char *name);
void fsdp_names_free(char **names, size_t n);

/* Of any text. */
bool fsdp_ends_with(const char *text, const char *end);
