/* Parses the statements of a template, such as {% if %}. parse_expression.c parses expressions. */
#include "src/text/jinja/parse.h"

#include <string.h>

#include "src/base/assert.h"

static fsdp_status parse_body(jinja_parser *parser, const char *const *ends, jinja_nodes *body);

static fsdp_status expect_block_end(jinja_parser *parser)
{
    if (jinja_current(parser)->type != JINJA_TOKEN_BLOCK_END)
        return fsdp_jinja_unexpected(parser, "'%}'");
    parser->at++;
    return FSDP_OK;
}

/* Parse the statements of a block, until the current token is the name of one of the tags in
 * `ends`. As in Jinja2, a colon may follow the tag that begins the block. */
static fsdp_status parse_block(jinja_parser *parser, const char *const *ends, jinja_nodes *body)
{
    (void)fsdp_jinja_skip_operator(parser, ":");
    FSDP_TRY(expect_block_end(parser));
    const int line = jinja_current(parser)->line;
    if (++parser->depth > JINJA_MAX_NESTING)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "line %d: nested more than %d deep", line,
                          JINJA_MAX_NESTING);
    FSDP_TRY(parse_body(parser, ends, body));
    parser->depth--;
    if (jinja_current(parser)->type == JINJA_TOKEN_END)
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: a block without its {%% %s %%}", line,
                          ends[0]);
    return FSDP_OK;
}

/* Like parse_block(), but `end` is the only tag that ends the block, and its name is skipped. */
static fsdp_status parse_whole_block(jinja_parser *parser, const char *end, jinja_nodes *body)
{
    const char *const ends[] = {end, NULL};
    FSDP_TRY(parse_block(parser, ends, body));
    parser->at++;
    return FSDP_OK;
}

/* ---- statements ------------------------------------------------------------------------------ */

static fsdp_status parse_set(jinja_parser *parser, int line, jinja_node **out)
{
    jinja_node *node;
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_SET, line, &node));
    FSDP_TRY(fsdp_jinja_parse_target(parser, true, NULL, &node->a));
    *out = node;
    if (fsdp_jinja_skip_operator(parser, "="))
        return fsdp_jinja_parse_tuple(parser, true, NULL, &node->b);
    node->type = JINJA_NODE_SET_BLOCK;
    FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof *node->as.scope, &node->as.scope));
    FSDP_TRY(fsdp_jinja_parse_filters(parser, NULL, false, &node->b));
    return parse_whole_block(parser, "endset", &node->body);
}

static fsdp_status parse_for(jinja_parser *parser, int line, jinja_node **out)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    jinja_node *node;
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_FOR, line, &node));
    FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof *node->as.loop, &node->as.loop));
    FSDP_TRY(fsdp_jinja_parse_target(parser, false, "in", &node->a));
    if (!fsdp_jinja_skip_name(parser, "in"))
        return fsdp_jinja_unexpected(parser, "'in'");
    FSDP_TRY(fsdp_jinja_parse_tuple(parser, false, "recursive", &node->b));
    if (fsdp_jinja_skip_name(parser, "if"))
        FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &node->c));
    if (fsdp_jinja_at_name(parser, "recursive"))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "line %d: 'recursive' loops are not supported; "
                          "write a macro that calls itself",
                          line);
    FSDP_TRY(parse_block(parser, ends, &node->body));
    *out = node;
    if (fsdp_jinja_skip_name(parser, "endfor"))
        return FSDP_OK;
    parser->at++;
    return parse_whole_block(parser, "endfor", &node->otherwise);
}

static fsdp_status parse_if(jinja_parser *parser, int line, jinja_node **out)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    jinja_node *first, *node;
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_IF, line, &first));
    parser->conditional++;
    node = first;
    for (;;) {
        FSDP_TRY(fsdp_jinja_parse_tuple(parser, false, NULL, &node->a));
        FSDP_TRY(parse_block(parser, ends, &node->body));
        if (!fsdp_jinja_skip_name(parser, "elif"))
            break;
        FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_IF, jinja_current(parser)->line, &node));
        FSDP_TRY(fsdp_jinja_add_node(parser, &first->items, node));
    }
    if (fsdp_jinja_skip_name(parser, "else"))
        FSDP_TRY(parse_whole_block(parser, "endif", &first->otherwise));
    else
        parser->at++;
    parser->conditional--;
    *out = first;
    return FSDP_OK;
}

/* Parse the name of a macro or parameter. `what` is the description of the expected name in error
 * messages. */
static fsdp_status parse_name(jinja_parser *parser, const char *what, jinja_node **out)
{
    if (jinja_current(parser)->type != JINJA_TOKEN_NAME)
        return fsdp_jinja_unexpected(parser, what);
    return fsdp_jinja_parse_target_name(parser, out);
}

static fsdp_status parse_signature(jinja_parser *parser, jinja_macro_node *macro)
{
    jinja_node *param, *value;
    FSDP_TRY(fsdp_jinja_expect_operator(parser, "("));
    while (!fsdp_jinja_at_operator(parser, ")")) {
        if (macro->params.n)
            FSDP_TRY(fsdp_jinja_expect_operator(parser, ","));
        FSDP_TRY(parse_name(parser, "the name of a parameter", &param));
        FSDP_TRY(fsdp_jinja_add_node(parser, &macro->params, param));
        if (fsdp_jinja_skip_operator(parser, "=")) {
            FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &value));
            FSDP_TRY(fsdp_jinja_add_node(parser, &macro->defaults, value));
        } else if (macro->defaults.n) {
            return fsdp_jinja_unexpected(parser, "a default, as the parameter before has one,");
        }
    }
    parser->at++;
    return FSDP_OK;
}

static fsdp_status macro_node(jinja_parser *parser, jinja_node_type type, int line,
                              jinja_node **out)
{
    FSDP_TRY(fsdp_jinja_node(parser, type, line, out));
    return fsdp_jinja_alloc(parser->machine, sizeof *(*out)->as.macro, &(*out)->as.macro);
}

static fsdp_status parse_macro(jinja_parser *parser, int line, jinja_node **out)
{
    jinja_node *node, *name;
    FSDP_TRY(macro_node(parser, JINJA_NODE_MACRO, line, &node));
    FSDP_TRY(parse_name(parser, "the name of a macro", &name));
    node->name = node->as.macro->name = name->name;
    FSDP_TRY(parse_signature(parser, node->as.macro));
    *out = node;
    return parse_whole_block(parser, "endmacro", &node->as.macro->body);
}

static fsdp_status parse_call_block(jinja_parser *parser, int line, jinja_node **out)
{
    jinja_node *node;
    FSDP_TRY(macro_node(parser, JINJA_NODE_CALL_BLOCK, line, &node));
    if (fsdp_jinja_at_operator(parser, "("))
        FSDP_TRY(parse_signature(parser, node->as.macro));
    FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &node->a));
    if (node->a->type != JINJA_NODE_CALL)
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: {%% call %%} needs the call of a macro", line);
    *out = node;
    return parse_whole_block(parser, "endcall", &node->as.macro->body);
}

static fsdp_status parse_generation(jinja_parser *parser, int line, jinja_node **out)
{
    FSDP_TRY(macro_node(parser, JINJA_NODE_GENERATION, line, out));
    return parse_whole_block(parser, "endgeneration", &(*out)->as.macro->body);
}

static fsdp_status parse_filter_block(jinja_parser *parser, int line, jinja_node **out)
{
    jinja_node *node;
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_FILTER_BLOCK, line, &node));
    FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof *node->as.scope, &node->as.scope));
    FSDP_TRY(fsdp_jinja_parse_filters(parser, NULL, true, &node->b));
    *out = node;
    return parse_whole_block(parser, "endfilter", &node->body);
}

static fsdp_status parse_with(jinja_parser *parser, int line, jinja_node **out)
{
    jinja_node *node, *item;
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_WITH, line, &node));
    FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof *node->as.scope, &node->as.scope));
    while (jinja_current(parser)->type != JINJA_TOKEN_BLOCK_END) {
        if (node->items.n)
            FSDP_TRY(fsdp_jinja_expect_operator(parser, ","));
        FSDP_TRY(fsdp_jinja_parse_target(parser, false, NULL, &item));
        FSDP_TRY(fsdp_jinja_add_node(parser, &node->items, item));
        FSDP_TRY(fsdp_jinja_expect_operator(parser, "="));
        FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &item));
        FSDP_TRY(fsdp_jinja_add_node(parser, &node->items, item));
    }
    *out = node;
    return parse_whole_block(parser, "endwith", &node->body);
}

static fsdp_status parse_break(jinja_parser *parser, int line, jinja_node **out)
{
    return fsdp_jinja_node(parser, JINJA_NODE_BREAK, line, out);
}

static fsdp_status parse_continue(jinja_parser *parser, int line, jinja_node **out)
{
    return fsdp_jinja_node(parser, JINJA_NODE_CONTINUE, line, out);
}

/* Parse the statement {% print a, b %}. */
static fsdp_status parse_print(jinja_parser *parser, int line, jinja_node **out)
{
    jinja_node *node, *item, *print;
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_WITH, line, &node));
    FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof *node->as.scope, &node->as.scope));
    while (jinja_current(parser)->type != JINJA_TOKEN_BLOCK_END) {
        if (node->body.n)
            FSDP_TRY(fsdp_jinja_expect_operator(parser, ","));
        FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &item));
        FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_PRINT, line, &print));
        print->a = item;
        FSDP_TRY(fsdp_jinja_add_node(parser, &node->body, print));
    }
    *out = node;
    return FSDP_OK;
}

typedef struct statement {
    const char *name;
    /* NULL: Jinja2 has this statement, but this library does not */
    fsdp_status (*parse)(jinja_parser *parser, int line, jinja_node **out);
} statement;

static const statement statements[] = {
    {"if", parse_if},           {"for", parse_for},
    {"set", parse_set},         {"macro", parse_macro},
    {"call", parse_call_block}, {"filter", parse_filter_block},
    {"with", parse_with},       {"generation", parse_generation},
    {"break", parse_break},     {"continue", parse_continue},
    {"print", parse_print},     {"block", NULL},
    {"extends", NULL},          {"include", NULL},
    {"import", NULL},           {"from", NULL},
    {"autoescape", NULL},
};

static fsdp_status parse_statement(jinja_parser *parser, jinja_node **out)
{
    const jinja_token *token = jinja_current(parser);
    if (token->type != JINJA_TOKEN_NAME)
        return fsdp_jinja_unexpected(parser, "the name of a tag");
    const int bytes = token->text.bytes > 60 ? 60 : (int)token->text.bytes;
    for (size_t i = 0; i < FSDP_LENGTH(statements); i++) {
        if (!fsdp_jinja_string_is(&token->text, statements[i].name))
            continue;
        if (!statements[i].parse)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "line %d: {%% %s %%} is not supported",
                              token->line, statements[i].name);
        parser->at++;
        return statements[i].parse(parser, token->line, out);
    }
    return fsdp_error(FSDP_ERR_FORMAT, "line %d: unknown or misplaced tag '%.*s'", token->line,
                      bytes, token->text.data);
}

static bool is_end(const jinja_parser *parser, const char *const *ends)
{
    for (size_t i = 0; ends && ends[i]; i++)
        if (fsdp_jinja_at_name(parser, ends[i]))
            return true;
    return false;
}

/* Parse one piece of a template: the text up to the next tag, a {{ ... }}, or a {% ... %}. Add the
 * node of this piece to `body`. If the piece is a tag in `ends`, add nothing and set *ended to true
 * instead. */
static fsdp_status parse_piece(jinja_parser *parser, const char *const *ends, jinja_nodes *body,
                               bool *ended)
{
    const jinja_token *token = jinja_current(parser);
    jinja_node *node;
    parser->at++;
    switch (token->type) {
    case JINJA_TOKEN_DATA:
        FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_DATA, token->line, &node));
        FSDP_TRY(fsdp_jinja_substring(parser->machine, token->text.data, token->text.bytes,
                                      &node->constant));
        break;
    case JINJA_TOKEN_VARIABLE_BEGIN:
        FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_PRINT, token->line, &node));
        FSDP_TRY(fsdp_jinja_parse_tuple(parser, true, NULL, &node->a));
        if (jinja_current(parser)->type != JINJA_TOKEN_VARIABLE_END)
            return fsdp_jinja_unexpected(parser, "'}}'");
        parser->at++;
        break;
    default:
        *ended = is_end(parser, ends);
        if (*ended)
            return FSDP_OK;
        FSDP_TRY(parse_statement(parser, &node));
        FSDP_TRY(expect_block_end(parser));
        break;
    }
    return fsdp_jinja_add_node(parser, body, node);
}

static fsdp_status parse_body(jinja_parser *parser, const char *const *ends, jinja_nodes *body)
{
    bool ended = false;
    while (!ended && jinja_current(parser)->type != JINJA_TOKEN_END)
        FSDP_TRY(parse_piece(parser, ends, body, &ended));
    return FSDP_OK;
}

fsdp_status fsdp_jinja_parse(jinja_machine *machine, const jinja_tokens *tokens, jinja_tree *tree)
{
    jinja_parser parser = {.machine = machine, .tokens = tokens->items};
    *tree = (jinja_tree){0};
    return parse_body(&parser, NULL, &tree->body);
}
