/* Opens and renders templates: calls the lexer, the parser, and the functions that run the tree. */
#include "src/text/jinja/jinja.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/utf8.h"
#include "src/text/jinja/parse.h"
#include "src/text/jinja/render.h"
#include "src/text/jinja/symbols.h"

struct fsdp_jinja {
    jinja_machine memory; /* the memory that contains the tree */
    jinja_tree tree;
};

void fsdp_jinja_init(jinja_machine *machine)
{
    *machine = (jinja_machine){.steps_left = JINJA_MAX_STEPS};
}

void fsdp_jinja_fini(jinja_machine *machine)
{
    fsdp_free(machine->spans);
    fsdp_arena_fini(&machine->arena);
    *machine = (jinja_machine){0};
}

static fsdp_status parse(fsdp_jinja *jinja, const char *source, size_t bytes)
{
    jinja_tokens tokens = {0};
    fsdp_status status = fsdp_jinja_tokenize(&jinja->memory, source, bytes, &tokens);
    if (status == FSDP_OK)
        status = fsdp_jinja_parse(&jinja->memory, &tokens, &jinja->tree);
    fsdp_free(tokens.items);
    return status == FSDP_OK ? fsdp_jinja_resolve(&jinja->memory, &jinja->tree) : status;
}

fsdp_status fsdp_jinja_open(const char *source, size_t bytes, fsdp_jinja **out)
{
    if (bytes > JINJA_MAX_SOURCE)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a template of %zu bytes; %d are supported", bytes,
                          JINJA_MAX_SOURCE);
    if (fsdp_utf8_valid_length(source, bytes) < bytes)
        return fsdp_error(FSDP_ERR_FORMAT, "the template is not UTF-8 (byte %zu)",
                          fsdp_utf8_valid_length(source, bytes));
    fsdp_jinja *jinja = fsdp_calloc(1, sizeof *jinja);
    if (!jinja)
        return FSDP_ERR_NOMEM;
    fsdp_jinja_init(&jinja->memory);
    const fsdp_status status = parse(jinja, source, bytes);
    if (status == FSDP_OK)
        *out = jinja;
    else
        fsdp_jinja_close(jinja);
    return status;
}

void fsdp_jinja_close(fsdp_jinja *jinja)
{
    if (!jinja)
        return;
    fsdp_jinja_fini(&jinja->memory);
    fsdp_free(jinja);
}

bool fsdp_jinja_has_generation(const fsdp_jinja *jinja)
{
    return jinja->tree.has_generation;
}

fsdp_status fsdp_jinja_give(jinja_machine *machine, jinja_value given, const char *name,
                            jinja_value value)
{
    jinja_value key;
    FSDP_TRY(fsdp_jinja_string(machine, name, strlen(name), &key));
    return fsdp_jinja_dict_set(machine, given.as.dict, key, value);
}

fsdp_status fsdp_jinja_render(const fsdp_jinja *jinja, jinja_machine *machine, jinja_value given,
                              char **text, size_t *bytes)
{
    fsdp_str written = {0};
    machine->located = false;
    machine->depth = 0;
    const fsdp_status status = fsdp_jinja_run(machine, &jinja->tree, given.as.dict, &written);
    if (status != FSDP_OK) {
        fsdp_str_fini(&written);
        return status;
    }
    *bytes = written.len;
    *text = fsdp_str_take(&written);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}
