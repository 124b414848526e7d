/* The table of questions, for questions.c. */
#pragma once
#include "src/accelerate/yaml_tree.h"

enum {
    FSDP_QUESTIONS = 41
};

typedef struct fsdp_answers {
    char *values[FSDP_QUESTIONS]; /* canonical texts; NULL: the question does not apply */
    char *given[FSDP_QUESTIONS];  /* what the user gave without being asked; NULL: nothing */
} fsdp_answers;

typedef enum fsdp_question_kind {
    FSDP_ASK_YES_NO,
    FSDP_ASK_CHOICE,
    FSDP_ASK_INT,
    FSDP_ASK_TEXT
} fsdp_question_kind;

typedef struct fsdp_question {
    const char *key;     /* in the file; two questions may have the same, if only one applies */
    const char *section; /* the map that the key is in; NULL: the file itself; "": not written */
    const char *prompt;
    fsdp_question_kind kind;
    const char *const *values;             /* CHOICE: NULL-terminated */
    const char *const *shown;              /* CHOICE: what the menu shows; NULL: `values` */
    const char *value;                     /* default; NULL: the answer has none */
    const char *default_without_questions; /* NULL: `value` */
    long least;                            /* INT: the smallest number */
    bool may_be_empty;
    bool (*applies)(const fsdp_answers *answers);
    bool (*asked)(const fsdp_answers *answers); /* NULL: asked whenever it applies */
    const char *(*refuse)(const char *value);   /* why a value is refused; NULL: it is not */
    const char *needs; /* for an error: what must be answered so that the question applies */
    const char *hint;  /* YES_NO, for an error: added to it */
} fsdp_question;

extern const fsdp_question fsdp_questions[FSDP_QUESTIONS];

/* Return the answer to the question that applies; "" if there is none. */
const char *fsdp_answer(const fsdp_answers *answers, const char *key);
bool fsdp_answer_is(const fsdp_answers *answers, const char *key, const char *value);
/* Check answers against each other. */
FSDP_MUST_CHECK fsdp_status fsdp_answers_check(const fsdp_answers *answers);
/* Write the answers into an empty map, with the keys that Accelerate always writes. */
FSDP_MUST_CHECK fsdp_status fsdp_answers_write(const fsdp_answers *answers, fsdp_yaml *config);
