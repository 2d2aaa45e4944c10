"""What a session has used, as a table: by day and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from yiem_nb.budget import Budget, Spending
from yiem_nb.messages import AssistantMessage
from yiem_nb.session import MessageEntry, SessionTreeEntry

__all__ = ["spending_table"]


def spending_table(entries: Iterable[SessionTreeEntry], budget: Budget) -> str:
    """Return a line for each day and model; what was carried to another branch counts once."""
    spent: dict[tuple[str, str], Spending] = defaultdict(Spending)
    for entry in entries:
        if not isinstance(entry, MessageEntry) or entry.copy_of is not None:
            continue
        message = entry.message
        if isinstance(message, AssistantMessage) and Spending.of(message.usage).tokens:
            day = f"{message.datetime.astimezone():%Y-%m-%d}"
            spent[day, f"{message.provider}/{message.model}"] += Spending.of(message.usage)
    if not spent:
        return "Nothing was used yet."
    total = sum(spent.values(), Spending())
    rows = [(day, model, used) for (day, model), used in sorted(spent.items())]
    rows.append(("total", "", total))
    width = max(len(model) for _, model, _ in rows)
    lines = [f"{day:<10}  {model:<{width}}  {_line(used)}" for day, model, used in rows]
    caps = budget.model_dump(exclude_none=True)
    lines += [f"cap: {name} = {value:g}" for name, value in caps.items()]
    return "\n".join(lines)


def _line(used: Spending) -> str:
    cost = f"${used.cost:,.4f}" if used.cost else "unpriced"
    return f"{used.tokens:>12,} tokens  {cost:>10}"
