/* See chat.h. Only rank 0 has the conversation. The other ranks take part in generating each
 * answer, but have no prompts of their own. A message may be refused, because it is not UTF-8 or
 * makes the conversation too long for the model. The user then gets an error, and the conversation
 * continues without this message. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/generate/chat.h"
#include "src/text/chars/utf8.h"

void fsdp_chat_stream_init(fsdp_chat_stream *stream, const generate_run *run)
{
    *stream = (fsdp_chat_stream){.run = run};
    fsdp_text_stream_init(&stream->text, run->tokenizer);
}

static fsdp_status show_part(void *arg, const char *text, size_t bytes)
{
    fsdp_chat_stream *stream = arg;
    const fsdp_generate_config *c = stream->run->config;
    if (stream->copy)
        fsdp_str_append(stream->copy, text, bytes);
    return stream->run->rank == 0 ? c->part(c->terminal, text, bytes) : FSDP_OK;
}

fsdp_status fsdp_chat_stream_id(void *arg, int32_t row, int32_t sequence, int32_t id)
{
    fsdp_chat_stream *stream = arg;
    (void)row;
    (void)sequence;
    if (stream->follows)
        FSDP_TRY(
            fsdp_text_stream_follow(&stream->text, stream->follows->ids, stream->follows->len));
    stream->follows = NULL;
    return fsdp_text_stream_add(&stream->text, id, show_part, stream);
}

fsdp_status fsdp_chat_stream_end(fsdp_chat_stream *stream, fsdp_status status)
{
    const fsdp_generate_config *c = stream->run->config;
    if (status == FSDP_OK)
        status = fsdp_text_stream_end(&stream->text, show_part, stream);
    if (status == FSDP_OK && stream->run->rank == 0)
        status = c->part(c->terminal, "\n", 1);
    fsdp_text_stream_fini(&stream->text);
    return status;
}

/* --- the conversation --- */

typedef struct conversation {
    generate_run *run;
    fsdp_json *doc; /* {"messages": [...]}, the conversation so far; owned */
    char *system;   /* the system message; NULL: none; owned */
    size_t n_turns; /* number of answers so far */
} conversation;

/* Restart the conversation. It then contains only the system message, if there is one. */
static fsdp_status clear(conversation *c)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create("conversation", &doc));
    fsdp_json_set_array(fsdp_json_root(doc), "messages");
    if (c->system)
        fsdp_conversation_add(fsdp_json_root(doc), "system", c->system, strlen(c->system));
    const fsdp_status status = fsdp_json_check_built(doc);
    if (status != FSDP_OK) {
        fsdp_json_destroy(doc);
        return status;
    }
    fsdp_json_destroy(c->doc);
    c->doc = doc;
    return FSDP_OK;
}

/* Set *copy to a copy of the conversation to which `text` is appended as a user message. */
static fsdp_status copy_with(const conversation *c, const char *text, fsdp_json **copy)
{
    char *printed;
    size_t bytes;
    FSDP_TRY(fsdp_json_print(c->doc, FSDP_JSON_COMPACT, &printed, &bytes));
    fsdp_status status = fsdp_json_parse("conversation", 1, printed, bytes, copy);
    fsdp_free(printed);
    FSDP_TRY(status);
    fsdp_conversation_add(fsdp_json_root(*copy), "user", text, strlen(text));
    status = fsdp_json_check_built(*copy);
    if (status != FSDP_OK)
        fsdp_json_destroy(*copy);
    return status;
}

static fsdp_status check_room(const generate_run *g, size_t n)
{
    if (fsdp_generate_max_new(g->model, &g->generation, (int64_t)n) >= 1)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "the conversation has %zu tokens, which leaves no room for an answer: /clear "
                      "begins a new one",
                      n);
}

/* Make the conversation in `doc` the only prompt of the run. */
static fsdp_status make_prompt(const conversation *c, fsdp_json *doc)
{
    generate_run *g = c->run;
    const fsdp_prompt_encoding e = fsdp_generate_encoding(g);
    fsdp_prompts_free(&g->prompts);
    FSDP_TRY(fsdp_prompts_add_conversation(&g->prompts, &e, fsdp_json_root(doc)));
    return check_room(g, g->prompts.items[0].ids.len);
}

/* Set *generate on all ranks to its value on rank 0. Rank 0 passes true if all ranks must now
 * generate an answer, and false at the end of the conversation. */
static fsdp_status announce(const generate_run *g, bool *generate)
{
    int32_t word = *generate;
    if (g->world_size > 1)
        FSDP_TRY(fsdp_broadcast(g->group, &word, sizeof word, 0));
    *generate = word != 0;
    return FSDP_OK;
}

/* Generate an answer. On rank 0, append its text to *answer. Collective. */
static fsdp_status generate(const conversation *c, fsdp_str *answer)
{
    generate_run *g = c->run;
    fsdp_chat_stream stream;
    fsdp_generated *outputs = NULL;
    const size_t n = g->rank == 0 ? 1 : 0;
    fsdp_chat_stream_init(&stream, g);
    stream.copy = answer;
    const fsdp_status status =
        fsdp_generate_batch(g, 0, n, n ? fsdp_chat_stream_id : NULL, &stream, &outputs);
    fsdp_generated_free(outputs, n);
    const fsdp_status end = fsdp_chat_stream_end(&stream, status);
    return status == FSDP_OK ? fsdp_agree(g->group, end) : end;
}

static fsdp_status show(const conversation *c, const char *text)
{
    fsdp_generate_note(c->run, text);
    return FSDP_OK;
}

/* Show the last error, which has refused what the user wrote after `command`. */
static fsdp_status show_refused(const conversation *c, const char *command)
{
    char note[FSDP_ERROR_BYTES + 80];
    snprintf(note, sizeof note, "%s: %s; the conversation goes on as it was", command,
             fsdp_last_error());
    return show(c, note);
}

/* Generate an answer to the user message `text`, and append both to the conversation. Errors after
 * which the conversation can continue are shown to the user, and FSDP_OK is returned. */
static fsdp_status answer(conversation *c, const char *text)
{
    fsdp_json *doc = NULL;
    fsdp_str said = {0};
    bool yes = true;
    fsdp_status status = copy_with(c, text, &doc);
    if (status == FSDP_OK) {
        status = make_prompt(c, doc);
        if (status != FSDP_OK)
            fsdp_json_destroy(doc);
    }
    if (status != FSDP_OK)
        return status == FSDP_ERR_NOMEM ? status : show(c, fsdp_last_error());
    status = announce(c->run, &yes);
    if (status == FSDP_OK)
        status = generate(c, &said);
    if (status == FSDP_OK && said.failed)
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        fsdp_conversation_add(fsdp_json_root(doc), "assistant", said.data ? said.data : "",
                              said.len);
        status = fsdp_json_check_built(doc);
    }
    fsdp_str_fini(&said);
    fsdp_json_destroy(status == FSDP_OK ? c->doc : doc);
    if (status == FSDP_OK)
        c->doc = doc;
    /* The random numbers of sampling depend on run->turn, so they differ between answers. */
    c->run->turn = ++c->n_turns;
    return status;
}

/* --- lines --- */

static fsdp_status check_utf8(const char *text)
{
    const size_t length = strlen(text), valid = fsdp_utf8_valid_length(text, length);
    return valid == length
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_INVALID, "the message is not UTF-8: byte 0x%02x at offset %zu",
                            (unsigned)(unsigned char)text[valid], valid);
}

static bool is_command(const char *line, const char *name, const char **rest)
{
    const size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || (line[n] && line[n] != ' '))
        return false;
    *rest = line + n + strspn(line + n, " ");
    return true;
}

/* Begin the conversation again with the system message `text`. If the message is not UTF-8, show
 * the error, and keep the conversation as it is. */
static fsdp_status set_system(conversation *c, const char *text)
{
    char *copy = NULL;
    if (check_utf8(text) != FSDP_OK)
        return show_refused(c, "/system");
    if (*text && !(copy = fsdp_strndup(text, strlen(text))))
        return FSDP_ERR_NOMEM;
    fsdp_free(c->system);
    c->system = copy;
    FSDP_TRY(clear(c));
    return show(c, *text ? "the conversation begins again with this message of the system"
                         : "the conversation begins again without a message of the system");
}

/* Run the command in `line`. Set *end to true if the command ends the conversation. */
static fsdp_status read_command(conversation *c, const char *line, bool *end)
{
    const char *rest;
    *end = is_command(line, "/exit", &rest) || is_command(line, "/quit", &rest);
    if (*end)
        return FSDP_OK;
    if (is_command(line, "/clear", &rest)) {
        FSDP_TRY(clear(c));
        return show(c, "the conversation begins again");
    }
    if (is_command(line, "/system", &rest))
        return set_system(c, rest);
    return show(c, "a command is /exit, /clear or /system TEXT; a message that begins with / is "
                   "written with two, //");
}

static fsdp_status read_messages(conversation *c)
{
    const fsdp_generate_config *config = c->run->config;
    for (bool end = false; !end;) {
        char *line;
        FSDP_TRY(config->read_line(config->terminal, &line));
        if (!line)
            return FSDP_OK;
        const bool command = line[0] == '/' && line[1] != '/';
        fsdp_status status = FSDP_OK;
        if (command)
            status = read_command(c, line, &end);
        else if (line[strspn(line, " \t\r")])
            status = answer(c, line + (line[0] == '/'));
        fsdp_free(line);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

static fsdp_status lead(conversation *c)
{
    const generate_run *g = c->run;
    bool no = false;
    if (g->config->system)
        c->system = fsdp_strndup(g->config->system, strlen(g->config->system));
    fsdp_status status = g->config->system && !c->system ? FSDP_ERR_NOMEM : FSDP_OK;
    if (status == FSDP_OK && c->system) {
        status = check_utf8(c->system);
        fsdp_error_context(status, "--system");
    }
    if (status == FSDP_OK)
        status = clear(c);
    if (status == FSDP_OK)
        status = read_messages(c);
    fsdp_json_destroy(c->doc);
    fsdp_free(c->system);
    FSDP_TRY(status);
    return announce(g, &no);
}

static fsdp_status follow(conversation *c)
{
    for (bool more = true;;) {
        fsdp_str nothing = {0};
        FSDP_TRY(announce(c->run, &more));
        if (!more)
            return FSDP_OK;
        FSDP_TRY(generate(c, &nothing));
    }
}

fsdp_status fsdp_chat_run(generate_run *run)
{
    conversation c = {.run = run};
    return run->rank == 0 ? lead(&c) : follow(&c);
}
