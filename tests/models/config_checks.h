/* What tests of config.json share. */
#pragma once
#include <fsdp/models.h>

#include "tests/test.h"

/* A file in the test's directory; four of them at a time. */
const char *config_path(fsdp_test *t, const char *name);
/* fsdp_model_config_read() for a text called config.json. */
fsdp_status config_parse(const char *text, fsdp_model_config *config);

typedef struct config_refusal {
    const char *text;
    fsdp_status status;
    const char *error; /* the message contains it */
} config_refusal;
/* Each text is refused, and nothing is filled. */
void config_check_refused(fsdp_test *t, const config_refusal *cases, size_t n);

/* Whole file, the caller's; NULL if it cannot be read. */
char *config_text(const char *path);
void config_check_same_text(fsdp_test *t, const char *path, const char *expected);
