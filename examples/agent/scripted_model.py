#!/usr/bin/env python3
"""Stands for a language model in the tests: it makes a mistake, reads the error and mends it."""

import json
import sys

conversation = json.load(sys.stdin)
said = [turn["content"] for turn in conversation if turn["role"] == "tool"]

if not said:
    reply = {"command": "printf 'print(sum(range(101)) / 0)' >sum.py && python3 sum.py"}
elif len(said) == 1 and "ZeroDivisionError" in said[0] and "[exit code 1]" in said[0]:
    reply = {"command": "sed -i 's, / 0,,' sum.py && python3 sum.py"}
elif len(said) == 2 and "[stdout]\n5050" in said[1]:
    reply = {"answer": "The sum is 5050."}
else:
    reply = {"answer": f"The loop told me something unexpected: {said}"}
print(json.dumps(reply))
