/* See config_checks.h. */
#include "tests/models/config_checks.h"

#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/models/model_type.h"

const char *config_path(fsdp_test *t, const char *name)
{
    static char paths[4][300];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", fsdp_test_dir(t), name);
    return paths[next];
}

fsdp_status config_parse(const char *text, fsdp_model_config *config)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_parse("config.json", 1, text, strlen(text), &doc));
    fsdp_status status = fsdp_model_config_parse(doc, config);
    fsdp_json_destroy(doc);
    return status;
}

void config_check_refused(fsdp_test *t, const config_refusal *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fsdp_model_config c = {0};
        fsdp_status status = config_parse(cases[i].text, &c);
        if (status != cases[i].status || !strstr(fsdp_last_error(), cases[i].error))
            FAIL("%s: %s: %s", cases[i].text, fsdp_status_name(status),
                 status ? fsdp_last_error() : "");
        ASSERT(!c.type);
    }
}

char *config_text(const char *path)
{
    char *text = NULL;
    size_t bytes;
    return fsdp_file_read(path, 100000, &text, &bytes) == FSDP_OK ? text : NULL;
}

void config_check_same_text(fsdp_test *t, const char *path, const char *expected)
{
    char *got = config_text(path), *want = config_text(expected);
    ASSERT(got && want);
    ASSERT_STR(got, want);
    fsdp_free(got);
    fsdp_free(want);
}
