/* Renders conversations, and finds the assistant's texts in the result. include/fsdp/chat.h
 * describes how they are found. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chat/chat.h"
#include "src/text/jinja/print.h"

enum {
    /* A conversation may be rendered several times. All these renderings together may take
     * RENDERINGS times the number of steps that one rendering may take. */
    RENDERINGS = 10
};

/* What the functions below need while they render a conversation. */
typedef struct conversation {
    const fsdp_chat_template *chat;
    const fsdp_jinja *jinja;
    const fsdp_chat_options *options;
    jinja_machine values; /* owns the values of the variables */
    jinja_value given;    /* a dict of the variables that the template can use */
    jinja_value messages; /* a list of all messages */
    size_t n_prompt;      /* number of messages that belong to the prompt, not to the completion */
    uint64_t steps_left;  /* number of steps that the remaining renderings may take together */
} conversation;

void fsdp_chat_text_fini(fsdp_chat_text *text)
{
    fsdp_free(text->text);
    fsdp_free(text->spans);
    *text = (fsdp_chat_text){0};
}

/* ---- variables ------------------------------------------------------------------------------- */

/* If the message has the assistant's reasoning under one of three keys, also give it to the
 * template as "thinking" and "reasoning_content", because templates use different keys.
 * transformers does the same. */
static fsdp_status alias_reasoning(jinja_machine *machine, jinja_value *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    jinja_value reasoning = {.kind = JINJA_MISSING}, aliased;
    for (size_t i = 0; i < 3 && reasoning.kind == JINJA_MISSING; i++)
        reasoning = fsdp_jinja_dict_find(message->as.dict, names[i], strlen(names[i]));
    if (reasoning.kind == JINJA_MISSING)
        return FSDP_OK;
    FSDP_TRY(fsdp_jinja_dict(machine, &aliased));
    FSDP_TRY(fsdp_jinja_give(machine, aliased, "thinking", reasoning));
    for (size_t i = 0; i < message->as.dict->n; i++)
        FSDP_TRY(fsdp_jinja_dict_set(machine, aliased.as.dict, message->as.dict->entries[i].key,
                                     message->as.dict->entries[i].value));
    FSDP_TRY(fsdp_jinja_give(machine, aliased, "reasoning_content", reasoning));
    *message = aliased;
    return FSDP_OK;
}

/* Convert a message to a dict. Leave out keys whose value is null, because a template that only
 * tests whether a key exists would take null for a real value. */
static fsdp_status convert_message(jinja_machine *machine, fsdp_json_node node, jinja_value *out)
{
    jinja_value message, value;
    fsdp_json_node object;
    FSDP_TRY(fsdp_json_get_object(node, NULL, &object));
    FSDP_TRY(fsdp_jinja_dict(machine, &message));
    for (fsdp_json_node v = fsdp_json_first(object); v.value; v = fsdp_json_next(v)) {
        if (fsdp_json_kind_of(v) == FSDP_JSON_NULL)
            continue;
        FSDP_TRY(fsdp_jinja_from_json(machine, v, &value));
        FSDP_TRY(fsdp_jinja_give(machine, message, v.key, value));
    }
    FSDP_TRY(alias_reasoning(machine, &message));
    *out = message;
    return FSDP_OK;
}

static fsdp_status add_messages(conversation *c, fsdp_json_node row, const char *key)
{
    fsdp_json_node list;
    jinja_value message;
    FSDP_TRY(fsdp_json_get_array(row, key, &list));
    for (size_t i = 0; i < fsdp_json_len(list); i++) {
        FSDP_TRY(convert_message(&c->values, fsdp_json_at(list, i), &message));
        FSDP_TRY(fsdp_jinja_list_add(&c->values, c->messages.as.list, message));
    }
    return FSDP_OK;
}

/* Convert the messages of `row` to c->messages: those under "messages", or those under "prompt"
 * followed by those under "completion". */
static fsdp_status convert_messages(conversation *c, fsdp_json_node row)
{
    const bool parts = !fsdp_json_has(row, "messages") && fsdp_json_has(row, "prompt");
    FSDP_TRY(fsdp_jinja_list(&c->values, 0, &c->messages));
    FSDP_TRY(add_messages(c, row, parts ? "prompt" : "messages"));
    c->n_prompt = c->messages.as.list->n;
    if (parts)
        FSDP_TRY(add_messages(c, row, "completion"));
    else if (c->n_prompt)
        c->n_prompt--;
    if (c->messages.as.list->n == 0)
        return fsdp_json_mismatch(row, parts ? "prompt" : "messages", "at least one message");
    return FSDP_OK;
}

/* Set the variable `key` of the template to the list that the row has under `key`, or to none. Set
 * *any to true if there is a list. Instead of a list, the row may have a string with the list as
 * JSON: datasets store tools in this form if the types of the tools do not fit into one column. */
static fsdp_status give_list(conversation *c, fsdp_json_node row, const char *key, bool *any)
{
    jinja_value list = jinja_none();
    fsdp_json *parsed = NULL;
    fsdp_json_node node = fsdp_json_find(row, key);
    fsdp_status status = FSDP_OK;
    if (fsdp_json_kind_of(node) == FSDP_JSON_STRING) {
        const char *text;
        FSDP_TRY(fsdp_json_get_str(row, key, &text));
        FSDP_TRY(fsdp_json_parse(key, 1, text, strlen(text), &parsed));
        node = fsdp_json_root(parsed);
    }
    *any = fsdp_json_kind_of(node) > FSDP_JSON_NULL;
    if (*any && fsdp_json_kind_of(node) != FSDP_JSON_ARRAY)
        status = fsdp_json_mismatch(node, NULL, "a list");
    if (*any && status == FSDP_OK)
        status = fsdp_jinja_from_json(&c->values, node, &list);
    fsdp_json_destroy(parsed);
    return status == FSDP_OK ? fsdp_jinja_give(&c->values, c->given, key, list) : status;
}

/* Set a variable of the template for each entry of `object`, which is chat_template_kwargs. */
static fsdp_status give_entries(conversation *c, fsdp_json_node object)
{
    jinja_value value;
    for (fsdp_json_node v = fsdp_json_first(object); v.value; v = fsdp_json_next(v)) {
        if (!strcmp(v.key, "messages") || !strcmp(v.key, "tools") || !strcmp(v.key, "documents") ||
            !strcmp(v.key, "add_generation_prompt"))
            return fsdp_error(FSDP_ERR_INVALID, "chat_template_kwargs: '%s' is not one of them",
                              v.key);
        FSDP_TRY(fsdp_jinja_from_json(&c->values, v, &value));
        FSDP_TRY(fsdp_jinja_give(&c->values, c->given, v.key, value));
    }
    return FSDP_OK;
}

static fsdp_status give_kwargs(conversation *c, fsdp_json_node row)
{
    fsdp_json_node object;
    fsdp_json *doc = NULL;
    if (c->options->kwargs) {
        FSDP_TRY(fsdp_json_parse("chat_template_kwargs", 1, c->options->kwargs,
                                 strlen(c->options->kwargs), &doc));
        fsdp_status status = fsdp_json_get_object(fsdp_json_root(doc), NULL, &object);
        if (status == FSDP_OK)
            status = give_entries(c, object);
        fsdp_json_destroy(doc);
        FSDP_TRY(status);
    }
    if (!fsdp_json_has(row, "chat_template_kwargs"))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_object(row, "chat_template_kwargs", &object));
    return give_entries(c, object);
}

static fsdp_status give_all(conversation *c, fsdp_json_node row)
{
    bool tools, documents;
    jinja_value text;
    FSDP_TRY(convert_messages(c, row));
    FSDP_TRY(fsdp_jinja_dict(&c->values, &c->given));
    for (int i = 0; i < FSDP_CHAT_TOKENS; i++) {
        const char *token = c->chat->tokens.texts[i];
        if (!token)
            continue;
        FSDP_TRY(fsdp_jinja_string(&c->values, token, strlen(token), &text));
        FSDP_TRY(fsdp_jinja_give(&c->values, c->given, fsdp_chat_token_names[i], text));
    }
    FSDP_TRY(give_kwargs(c, row));
    FSDP_TRY(give_list(c, row, "tools", &tools));
    FSDP_TRY(give_list(c, row, "documents", &documents));
    c->jinja = tools && c->chat->with_tools ? c->chat->with_tools : c->chat->jinja;
    return FSDP_OK;
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* Render the first n messages to `out`, which the caller frees. If `spans` is true, also set
 * out->spans to the parts of the text that {% generation %} blocks have written. */
static fsdp_status render_first(conversation *c, size_t n, bool generation_prompt,
                                fsdp_chat_text *out, bool spans)
{
    jinja_machine machine;
    jinja_list first = {.items = c->messages.as.list->items, .n = n};
    const jinja_value messages = {.kind = JINJA_LIST, .as.list = &first};
    FSDP_TRY(fsdp_jinja_give(&c->values, c->given, "messages", messages));
    FSDP_TRY(fsdp_jinja_give(&c->values, c->given, "add_generation_prompt",
                             jinja_bool(generation_prompt)));
    fsdp_jinja_init(&machine);
    if (machine.steps_left > c->steps_left)
        machine.steps_left = c->steps_left;
    const uint64_t steps = machine.steps_left;
    fsdp_status status = fsdp_jinja_render(c->jinja, &machine, c->given, &out->text, &out->bytes);
    c->steps_left -= steps - machine.steps_left;
    if (status == FSDP_OK && spans) {
        out->spans = fsdp_calloc(machine.n_spans, sizeof *out->spans);
        status = out->spans ? FSDP_OK : FSDP_ERR_NOMEM;
        for (size_t i = 0; status == FSDP_OK && i < machine.n_spans; i++) {
            const jinja_span *span = &machine.spans[i];
            if (span->end > out->bytes ||
                memcmp(out->text + span->begin, span->text->data, span->end - span->begin) != 0)
                status =
                    fsdp_error(FSDP_ERR_UNSUPPORTED,
                               "line %d: the text of this {%% generation %%} block is not where "
                               "the template writes it, because the block is in a macro or in "
                               "text that is captured",
                               span->line);
            else
                out->spans[out->n_spans++] = (fsdp_chat_span){span->begin, span->end};
        }
    }
    fsdp_jinja_fini(&machine);
    return status;
}

/* ---- the assistant's texts by comparing renderings ------------------------------------------- */

static bool is_assistant(jinja_value message)
{
    const jinja_value role = fsdp_jinja_dict_find(message.as.dict, "role", 4);
    return role.kind == JINJA_STRING && fsdp_jinja_string_is(role.as.string, "assistant");
}

static bool begins_with(const fsdp_chat_text *text, const fsdp_chat_text *beginning)
{
    return beginning->bytes <= text->bytes &&
           memcmp(text->text, beginning->text, beginning->bytes) == 0;
}

static fsdp_status span_error(size_t index, const char *what)
{
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "messages[%zu]: where the assistant's text is in the whole text is not known: %s. "
        "Put {%% generation %%} ... {%% endgeneration %%} around it in the chat template, "
        "or choose a template that has this",
        index, what);
}

/* `whole` is the rendering of all messages. Set *span to the part of its text that belongs to
 * messages [first, end). Before this part are the text of the messages before `first` and the
 * generation prompt. */
static fsdp_status find_span(conversation *c, size_t first, size_t end, const fsdp_chat_text *whole,
                             fsdp_chat_span *span)
{
    fsdp_chat_text before = {0}, with = {0};
    fsdp_status status = render_first(c, first, true, &before, false);
    if (status != FSDP_OK && status != FSDP_ERR_NOMEM && first == 0)
        status = span_error(first, "it is the first message, and the template needs one before it");
    if (status == FSDP_OK)
        status = render_first(c, end, false, &with, false);
    if (status == FSDP_OK && !begins_with(&with, &before))
        status = span_error(first, "the template writes the messages before it differently when it "
                                   "follows");
    if (status == FSDP_OK && !begins_with(whole, &with))
        status = span_error(first, "the template writes it differently when other messages follow");
    if (status == FSDP_OK)
        *span = (fsdp_chat_span){before.bytes, with.bytes};
    fsdp_chat_text_fini(&before);
    fsdp_chat_text_fini(&with);
    return status;
}

static fsdp_status find_turns(conversation *c, fsdp_chat_text *out)
{
    const jinja_list *messages = c->messages.as.list;
    out->spans = fsdp_calloc(messages->n, sizeof *out->spans);
    if (!out->spans)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < messages->n; i++)
        if (is_assistant(messages->items[i]))
            FSDP_TRY(find_span(c, i, i + 1, out, &out->spans[out->n_spans++]));
    return FSDP_OK;
}

static fsdp_status find_completion(conversation *c, fsdp_chat_text *out)
{
    const jinja_list *messages = c->messages.as.list;
    if (c->n_prompt == messages->n)
        return fsdp_error(FSDP_ERR_FORMAT, "the completion has no message");
    if (!is_assistant(messages->items[c->n_prompt]))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "the completion must begin with a message of the assistant, but message "
                          "%zu of %zu is not one",
                          c->n_prompt + 1, messages->n);
    out->spans = fsdp_calloc(1, sizeof *out->spans);
    if (!out->spans)
        return FSDP_ERR_NOMEM;
    out->n_spans = 1;
    return find_span(c, c->n_prompt, messages->n, out, &out->spans[0]);
}

static fsdp_status render(conversation *c, fsdp_json_node row, fsdp_chat_text *out)
{
    const fsdp_chat_spans spans = c->options->spans;
    FSDP_TRY(give_all(c, row));
    const bool blocks = spans == FSDP_CHAT_SPANS_ASSISTANT && fsdp_jinja_has_generation(c->jinja);
    FSDP_TRY(
        render_first(c, c->messages.as.list->n, c->options->add_generation_prompt, out, blocks));
    if (spans == FSDP_CHAT_SPANS_COMPLETION)
        return find_completion(c, out);
    return spans == FSDP_CHAT_SPANS_ASSISTANT && !blocks ? find_turns(c, out) : FSDP_OK;
}

fsdp_status fsdp_chat_render_node(const fsdp_chat_template *chat, fsdp_json_node row,
                                  const fsdp_chat_options *options, fsdp_chat_text *out)
{
    static const fsdp_chat_options none = {0};
    fsdp_chat_text text = {0};
    conversation c = {.chat = chat, .options = options ? options : &none};
    fsdp_jinja_init(&c.values);
    c.steps_left = RENDERINGS * c.values.steps_left;
    const fsdp_status status = render(&c, row, &text);
    fsdp_error_context(status, "chat template %s", chat->source);
    fsdp_jinja_fini(&c.values);
    if (status == FSDP_OK)
        *out = text;
    else
        fsdp_chat_text_fini(&text);
    return status;
}

fsdp_status fsdp_chat_render(const fsdp_chat_template *chat, const char *text, size_t bytes,
                             const fsdp_chat_options *options, fsdp_chat_text *out)
{
    fsdp_json *doc = NULL;
    FSDP_TRY(fsdp_json_parse("conversation", 1, text, bytes, &doc));
    const fsdp_status status = fsdp_chat_render_node(chat, fsdp_json_root(doc), options, out);
    fsdp_json_destroy(doc);
    return status;
}
