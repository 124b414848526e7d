/* libFuzzer over chat templates: `make fuzz FUZZ_S=60`. The input is a template, which is rendered
 * for a fixed conversation with few steps. A text that comes out is UTF-8, and the same if the
 * template is rendered again. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/utf8.h"
#include "src/text/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char jinja_variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be \\u00e9.\"}, {\"role\": \"user\", "
    "\"content\": \" Hi \"}, {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", "
    "\"text\": \"\\ud83d\\ude00\"}], \"tool_calls\": [{\"id\": \"123456789\", \"function\": "
    "{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": [2.5, null, true]}}}]}], \"tools\": "
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"x\": 1}}}], "
    "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true, "
    "\"x\": -3, \"s\": \"a,b \\u03a3\", \"l\": [3, 1, 2], \"big\": 123456789012345678901}";

static fsdp_status render_few_steps(const fsdp_jinja *jinja, fsdp_json *doc, char **text,
                                    size_t *bytes)
{
    enum {
        STEPS = 50000
    };
    jinja_machine machine;
    jinja_value given;
    fsdp_jinja_init(&machine);
    machine.steps_left = STEPS;
    fsdp_status status = fsdp_jinja_from_json(&machine, fsdp_json_root(doc), &given);
    if (status == FSDP_OK)
        status = fsdp_jinja_render(jinja, &machine, given, text, bytes);
    fsdp_jinja_fini(&machine);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_jinja *jinja = NULL;
    fsdp_json *doc = NULL;
    char *text = NULL, *again = NULL;
    size_t length = 0, length_again = 0;
    const bool has_date = memmem(data, bytes, "strftime", 8) != NULL;
    if (fsdp_jinja_open((const char *)data, bytes, &jinja) != FSDP_OK)
        return 0;
    if (fsdp_json_parse("variables", 1, jinja_variables, sizeof jinja_variables - 1, &doc) !=
        FSDP_OK)
        abort();
    const fsdp_status first = render_few_steps(jinja, doc, &text, &length);
    const fsdp_status second = render_few_steps(jinja, doc, &again, &length_again);
    if (first != second || (!has_date && length != length_again))
        abort();
    if (first == FSDP_OK && fsdp_utf8_valid_length(text, length) != length)
        abort();
    if (first == FSDP_OK && !has_date && memcmp(text, again, length) != 0)
        abort();
    fsdp_free(text);
    fsdp_free(again);
    fsdp_json_destroy(doc);
    fsdp_jinja_close(jinja);
    return 0;
}
