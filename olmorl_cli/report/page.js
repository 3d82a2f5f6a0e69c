
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { groups, answers, details } = data;
  const PAGE = 50, HIDDEN = 30000;
  const firsts = [0], groupOfRow = new Map();
  groups.shown.forEach((shown, group) => {
    const first = firsts[group];
    for (let at = first; at < first + shown; at++) groupOfRow.set(answers.row[at], group);
    firsts.push(first + shown);
  });

  const number = (value) => {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US").replace("-", "−");
    return String(Number(value.toPrecision(4))).replace("-", "−");
  };
  const share = (value) => (value === null ? "–" : `${number(Number((100 * value).toPrecision(3)))} %`);
  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // Characters that steer what is around them are spelled out, as the rest of the page has them; line breaks and tabs stay.
  const ODD = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\u2028\u2029]/u;
  const spelled = (character) => {
    if (character === "\r") return "\\r";
    const code = character.codePointAt(0), hex = code.toString(16);
    return code < 0x100 ? `\\x${hex.padStart(2, "0")}` : code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  };
  const put = (parent, text) => {
    let plain = "";
    for (const character of text) {
      if (!ODD.test(character) || character === "\n" || character === "\t") { plain += character; continue; }
      parent.append(plain, element("span", "odd", spelled(character)));
      plain = "";
    }
    parent.append(plain);
    return parent;
  };

  const GROUP_COLUMNS = [
    { title: "step", values: groups.step, order: groups.order, show: (v) => v },
    { title: "group", values: groups.id, show: (v) => v, name: "id" },
    { title: "outcome", values: groups.outcome, show: (v) => data.outcomes[v] },
    { title: "answers", values: groups.size, numeric: true, lesser: true },
    { title: data.score, values: groups.mean, numeric: true },
    { title: "std", values: groups.std, numeric: true, lesser: true },
    { title: "cut", values: groups.cut, numeric: true, lesser: true },
    { title: "tokens", values: groups.tokens, numeric: true, lesser: true },
    { title: "clipped low", values: groups.low, numeric: true, lesser: true },
    { title: "clipped high", values: groups.high, numeric: true, lesser: true },
    { title: "weight", values: groups.weight, numeric: true, show: share },
  ].filter((column) => column.values);
  const ANSWER_COLUMNS = [
    { title: "row", values: answers.row, numeric: true, show: String },
    { title: "reward", values: answers.reward, numeric: true },
    { title: "advantage", values: answers.advantage, numeric: true },
    { title: "tokens", values: answers.tokens, numeric: true, lesser: true },
    { title: data.ends && data.ends.column, values: answers.end, show: (v) => (v < 0 ? "–" : data.ends.words[v]), name: "end" },
    { title: "clipped low", values: answers.low, numeric: true, lesser: true },
    { title: "clipped high", values: answers.high, numeric: true, lesser: true },
    { title: "mean ratio", values: answers.ratio, numeric: true, lesser: true },
  ].filter((column) => column.values);

  const classes = (column) => [column.numeric ? "n" : "", column.lesser ? "lesser" : "", column.name || ""].join(" ");
  const cell = (column, at) => {
    const made = element("td", classes(column));
    return put(made, (column.show || number)(column.values[at]));
  };
  const row = (columns, at, opens, label, inside) => {
    const made = element("tr", opens ? "opens" : "");
    made.dataset.at = at;
    const first = element("td");
    made.append(first, ...columns.map((column) => cell(column, at)));
    if (!opens) return made;
    const button = element("button", "", "▸");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-label", label);
    first.append(button);
    let inner = null;
    made.addEventListener("click", () => {
      const open = inner === null;
      if (open) {
        inner = element("tr", "inner");
        const wide = element("td");
        wide.colSpan = columns.length + 1;
        wide.append(...inside());
        inner.append(wide);
        made.after(inner);
      } else { inner.remove(); inner = null; }
      made.classList.toggle("opened", open);
      button.textContent = open ? "▾" : "▸";
      button.setAttribute("aria-expanded", String(open));
    });
    return made;
  };
  const heads = (columns) => {
    const made = element("tr");
    made.append(element("th"), ...columns.map((column) => element("th", classes(column), column.title)));
    return made;
  };
  const tableOf = (columns, rows) => {
    const table = element("table"), head = element("thead"), body = element("tbody"), scroll = element("div", "scroll");
    head.append(heads(columns));
    body.append(...rows);
    table.append(head, body);
    scroll.append(table);
    return scroll;
  };

  const insideGroup = (group) => {
    const parts = [];
    if (details.prompt && group < details.prompts.length) {
      parts.push(element("h3", "", details.prompt), put(element("div", "text"), details.prompts[group]));
    }
    const rows = [];
    for (let at = firsts[group]; at < firsts[group + 1]; at++) {
      rows.push(row(ANSWER_COLUMNS, at, at < data.detailed && (details.tokens || details.answers),
        `answer of row ${answers.row[at]}`, () => insideAnswer(at)));
    }
    if (rows.length) parts.push(tableOf(ANSWER_COLUMNS, rows));
    if (rows.length < groups.size[group]) {
      parts.push(element("p", "hint", `${number(rows.length)} of its ${number(groups.size[group])} answers are on this page.`));
    }
    if (firsts[group + 1] > data.detailed && rows.length && (details.tokens || details.answer)) {
      parts.push(element("p", "hint", "Answers that move the policy less are on this page without their tokens."));
    }
    return parts;
  };

  const insideAnswer = (at) => {
    const parts = [], text = details.answers ? details.answers[at] : undefined;
    const tokens = details.tokens ? details.tokens[at] : null;
    if (typeof text === "string" && !(tokens && details.by_character)) {
      parts.push(element("h3", "", details.answer), put(element("div", "text"), text));
    }
    if (typeof text === "string") {
      const rest = details.characters[at] - Array.from(text).length;
      if (rest > 0) parts.push(element("p", "hint", `${number(rest)} more characters are not on this page.`));
    } else if (details.answer) {
      parts.push(element("p", "hint", text === null ? `${details.answer} is null.` : "Its text is not on this page."));
    }
    if (tokens) parts.push(...tokenCells(at, tokens, details.by_character && typeof text === "string" ? Array.from(text) : null));
    return parts;
  };

  const level = (thousandths) => {
    const size = Math.abs(thousandths);
    if (size < 10) return "";
    return (thousandths < 0 ? "d" : "u") + (size < 50 ? 1 : size < 150 ? 2 : size < 300 ? 3 : 4);
  };
  const tokenCells = (at, codes, characters) => {
    const box = element("div", characters ? "tokens" : "tokens strip"), said = element("p", "said");
    const cut = new Set(details.clipped[at]);
    let place = 0;
    const add = (className, note) => {
      const made = element("span", `t ${className}`);
      const here = characters ? characters[place] : "";
      if (here !== undefined) put(made, here === "\n" ? "⏎" : here);
      made.title = `token ${place}: ${note}`;
      box.append(made);
      if (here === "\n") box.append("\n");
      place += 1;
    };
    for (const code of codes) {
      if (code > HIDDEN) {
        for (let left = code - HIDDEN; left > 0; left--) add("hidden", "masked or left out");
      } else {
        const clipped = cut.has(place);
        add(`${level(code)}${clipped ? " cut" : ""}`,
          `ratio ${number(Number(Math.exp(code / 1000).toPrecision(4)))}${clipped ? ", clipped" : ""}`);
      }
    }
    const point = (event) => { if (event.target !== box) said.textContent = event.target.title || ""; };
    box.addEventListener("pointerover", point);
    box.addEventListener("click", point);
    const parts = [element("h3", "", characters ? `${details.answer}, a character a token` : "tokens"), box, said];
    const rest = details.lengths[at] - place;
    if (rest > 0) parts.push(element("p", "hint", `${number(rest)} more tokens are not on this page.`));
    return parts;
  };

  const table = document.getElementById("groups");
  if (!table) return;
  const search = document.getElementById("search"), outcome = document.getElementById("outcome");
  const more = document.getElementById("more"), count = document.getElementById("count");
  const all = document.getElementById("all");
  const body = table.tBodies[0];
  let sorted = { column: null, down: true }, limit = PAGE, found = [], picked = null;

  const compare = (column, down) => {
    const values = column.order || column.values, sign = down ? -1 : 1;
    return (a, b) => {
      const x = values[a], y = values[b];
      if (x === y) return a - b;
      if (x === null) return 1;
      if (y === null) return -1;
      return x < y ? -sign : sign;
    };
  };
  const show = () => {
    const rows = found.slice(0, limit).map((group) => row(
      GROUP_COLUMNS, group, true, `group ${groups.id[group]}`, () => insideGroup(group)));
    body.replaceChildren(...rows);
    more.hidden = found.length <= limit;
    all.hidden = search.value === "" && outcome.value === "";
    count.textContent = `${number(found.length)} of ${number(groups.id.length)} groups`;
  };
  // A word before a colon asks for one step, row or group; all else is part of an id, or a step or row as a whole.
  const EXACT = /^(step|row|group):(.*)$/su, IN_STEP = /^step:(.*?) (group:.*)$/su;
  const bySearch = () => {
    const [, step, wanted] = IN_STEP.exec(search.value.trim().toLowerCase()) || [null, null, search.value.trim().toLowerCase()];
    const [, what, value] = EXACT.exec(wanted) || [null, "", wanted];
    const asked = (name) => what === "" || what === name;
    const groupOf = asked("row") && /^\d+$/.test(value.trim()) ? groupOfRow.get(Number(value)) : undefined;
    return (group) => {
      if (step !== null && groups.step && groups.step[group].toLowerCase() !== step.trim()) return false;
      const id = groups.id[group].toLowerCase();
      return id.includes(wanted) || (what === "group" && id === value) || group === groupOf
        || (asked("step") && groups.step && groups.step[group].toLowerCase() === value.trim());
    };
  };
  const find = () => {
    const matches = picked || bySearch(), kind = outcome.value;
    found = [];
    for (let group = 0; group < groups.id.length; group++) {
      if ((kind === "" || groups.outcome[group] === Number(kind)) && matches(group)) found.push(group);
    }
    if (sorted.column) found.sort(compare(sorted.column, sorted.down));
    limit = PAGE;
    show();
  };

  // What a finding names: its groups alone stand in the table then, and what is one group or one answer is open.
  const PICKS = {
    steps: (at) => [`step:${groups.step[groups.order.indexOf(at)]}`, (group) => groups.order[group] === at],
    groups: (at) => [`${groups.step ? `step:${groups.step[at]} ` : ""}group:${groups.id[at]}`, (group) => group === at],
    rows: (at) => [`row:${answers.row[at]}`, (group) => group === groupOfRow.get(answers.row[at])],
  };
  const goTo = (kind, at) => {
    [search.value, picked] = PICKS[kind](at);
    outcome.value = "";
    find();
    let target = document.getElementById("tools");
    if (kind !== "steps") body.querySelector("tr.opens").click();
    if (kind === "rows") {
      target = body.querySelector(`tr.inner tr[data-at="${at}"]`);
      target.classList.add("named");
      if (target.classList.contains("opens")) target.click();
    }
    target.scrollIntoView({ block: kind === "rows" ? "center" : "start" });
    (target.querySelector("input, button") || search).focus({ preventScroll: true });
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("button.to");
    if (link) goTo(link.dataset.kind, Number(link.dataset.at));
  });

  const head = element("tr");
  head.append(element("th"));
  for (const column of GROUP_COLUMNS) {
    const th = element("th", classes(column));
    const button = element("button", "", column.title);
    button.type = "button";
    button.addEventListener("click", () => {
      const down = sorted.column === column ? !sorted.down : Boolean(column.numeric);
      sorted = { column, down };
      for (const other of head.children) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      for (const [at, each] of GROUP_COLUMNS.entries()) {
        head.children[at + 1].firstChild.textContent = each.title + (each === column ? (down ? " ▾" : " ▴") : "");
      }
      find();
    });
    th.append(button);
    head.append(th);
  }
  table.tHead.append(head);
  data.outcomes.forEach((name, code) => {
    if (!groups.outcome.includes(code)) return;
    const option = element("option", "", name);
    option.value = String(code);
    outcome.append(option);
  });
  search.addEventListener("input", () => { picked = null; find(); });
  outcome.addEventListener("change", find);
  all.addEventListener("click", () => {
    [search.value, outcome.value, picked] = ["", "", null];
    find();
    search.focus({ preventScroll: true });
  });
  more.addEventListener("click", () => { limit += 4 * PAGE; show(); });
  find();
})();
