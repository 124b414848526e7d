/* Parses a template: parse.c statements, parse_expression.c expressions. */
#pragma once
#include "src/text/jinja/ast.h"
#include "src/text/jinja/lexer.h"

enum {
    JINJA_MAX_NESTING = 100 /* depth of expressions and blocks */
};

typedef struct jinja_parser {
    jinja_machine *machine; /* owns the memory of the nodes */
    const jinja_token *tokens;
    size_t at;
    int depth;
    int conditional; /* > 0: within an `if`, where an unknown filter is an error only if it runs */
} jinja_parser;

/* ---- tokens ---- */
static inline const jinja_token *jinja_current(const jinja_parser *parser)
{
    return &parser->tokens[parser->at];
}

bool fsdp_jinja_at_operator(const jinja_parser *parser, const char *op);
bool fsdp_jinja_at_name(const jinja_parser *parser, const char *name);
/* If the current token is this operator or name, skip it and return true. */
bool fsdp_jinja_skip_operator(jinja_parser *parser, const char *op);
bool fsdp_jinja_skip_name(jinja_parser *parser, const char *name);
/* Skip the current token, which must be the operator. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_expect_operator(jinja_parser *parser, const char *op);
/* Skip the current token, which must be a name. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_expect_name(jinja_parser *parser, const jinja_string **name);
/* Return the error of an unexpected token: "line 3: expected `what`, found '%}'". */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_unexpected(const jinja_parser *parser, const char *what);

/* ---- nodes ---- */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_node(jinja_parser *parser, jinja_node_type type, int line,
                                            jinja_node **out);
FSDP_MUST_CHECK fsdp_status fsdp_jinja_add_node(jinja_parser *parser, jinja_nodes *nodes,
                                                jinja_node *node);

/* ---- expressions ---- */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_expression(jinja_parser *parser, bool condition,
                                                        jinja_node **out);
/* Parse an expression, or several with commas between them, which become a tuple. With `condition`,
 * each of them may have the form `a if b else c`. The name `end`, if it is not NULL, ends the
 * tuple. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_tuple(jinja_parser *parser, bool condition,
                                                   const char *end, jinja_node **out);
/* Parse the target of an assignment: a name, or a tuple of names. With `attributes`, names may also
 * be name.attribute, for namespaces. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_target(jinja_parser *parser, bool attributes,
                                                    const char *end, jinja_node **out);
/* Parse a name as the target of an assignment. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_target_name(jinja_parser *parser, jinja_node **out);
/* Parse filters: `| name(...) | name ...`. If `inline_first`, there is no bar before the first.
 * `node` is the value that is filtered, or NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_filters(jinja_parser *parser, jinja_node *node,
                                                     bool inline_first, jinja_node **out);

/* Parse a template. The tree belongs to the memory of `machine`. On FSDP_ERR_FORMAT and
 * FSDP_ERR_UNSUPPORTED, the message begins with the line. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse(jinja_machine *machine, const jinja_tokens *tokens,
                                             jinja_tree *tree);
