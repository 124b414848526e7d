/* Helpers for tests of config.json. */
#pragma once
#include <fsdp/models.h>

#include "tests/test.h"

/* The path of a file in the test's directory. Up to four results are valid at the same time. */
const char *config_path(fsdp_test *t, const char *name);
/* fsdp_model_config_read() for a text that is written to config.json. */
fsdp_status config_parse(const char *text, fsdp_model_config *config);

typedef struct config_refusal {
    const char *text;
    fsdp_status status;
    const char *error; /* a part of the message */
} config_refusal;
/* Checks that each text is refused and nothing is written to the configuration. */
void config_check_refused(fsdp_test *t, const config_refusal *cases, size_t n);

/* The whole file, owned by the caller; NULL if it cannot be read. */
char *config_text(const char *path);
void config_check_same_text(fsdp_test *t, const char *path, const char *expected);
