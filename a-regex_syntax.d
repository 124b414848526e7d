regex_syntax.o: src/text/regex_syntax.c src/text/regex_syntax.h \
 include/fsdp/base.h src/base/alloc.h src/text/regex_class.h \
 src/base/str.h src/text/utf8.h
src/text/regex_syntax.h:
include/fsdp/base.h:
src/base/alloc.h:
src/text/regex_class.h:
src/base/str.h:
src/text/utf8.h:
