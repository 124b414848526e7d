/* For tools/check_chat.py: renders templates. Each line of the input is a JSON object {"template":
 * text, "variables": object}, or {"family": name, ...} for a template of the library. Each line of
 * the output is {"text": text, "spans": [begin, end, ...]} or {"error": message}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chat/chat.h"
#include "src/text/jinja/jinja.h"

static fsdp_status render_row(jinja_machine *machine, fsdp_json_node row, fsdp_json_node answer)
{
    const char *source, *family;
    char *text;
    size_t bytes;
    fsdp_jinja *jinja = NULL;
    jinja_value given = {0};
    FSDP_TRY(fsdp_json_opt_str(row, "family", NULL, &family));
    source = family ? fsdp_chat_family_template(family) : NULL;
    if (!source)
        FSDP_TRY(fsdp_json_get_str(row, "template", &source));
    FSDP_TRY(fsdp_jinja_from_json(machine, fsdp_json_find(row, "variables"), &given));
    fsdp_status status = fsdp_jinja_open(source, strlen(source), &jinja);
    if (status == FSDP_OK)
        status = fsdp_jinja_render(jinja, machine, given, &text, &bytes);
    if (status == FSDP_OK) {
        fsdp_json_set_str(answer, "text", text);
        fsdp_json_node spans = fsdp_json_set_array(answer, "spans");
        for (size_t i = 0; i < machine->n_spans; i++) {
            fsdp_json_append_i64(spans, (int64_t)machine->spans[i].begin);
            fsdp_json_append_i64(spans, (int64_t)machine->spans[i].end);
        }
        fsdp_free(text);
    }
    fsdp_jinja_close(jinja);
    return status;
}

static fsdp_status answer_line(const char *line, size_t bytes)
{
    fsdp_json *row = NULL, *answer = NULL;
    jinja_machine machine;
    char *printed = NULL;
    FSDP_TRY(fsdp_json_create("answer", &answer));
    fsdp_jinja_init(&machine);
    fsdp_status status = fsdp_json_parse("row", 1, line, bytes, &row);
    if (status == FSDP_OK)
        status = render_row(&machine, fsdp_json_root(row), fsdp_json_root(answer));
    if (status != FSDP_OK) {
        char message[2048];
        snprintf(message, sizeof message, "%s: %s", fsdp_status_name(status), fsdp_last_error());
        fsdp_json_set_str(fsdp_json_root(answer), "error", message);
    }
    status = fsdp_json_print(answer, FSDP_JSON_LINE, &printed, NULL);
    if (status == FSDP_OK)
        puts(printed);
    fsdp_free(printed);
    fsdp_jinja_fini(&machine);
    fsdp_json_destroy(row);
    fsdp_json_destroy(answer);
    return status;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t bytes;
    while ((bytes = getline(&line, &cap, stdin)) > 0) {
        if (answer_line(line, (size_t)bytes) != FSDP_OK) {
            fprintf(stderr, "chat_program: %s\n", fsdp_last_error());
            return 1;
        }
        fflush(stdout);
    }
    free(line);
    return 0;
}
