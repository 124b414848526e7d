regex.o: src/text/regex.c src/text/regex.h include/fsdp/base.h \
 src/base/alloc.h src/text/regex_syntax.h
src/text/regex.h:
include/fsdp/base.h:
src/base/alloc.h:
src/text/regex_syntax.h:
