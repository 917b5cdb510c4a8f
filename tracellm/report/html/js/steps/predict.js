/**
 * Predict mode: the steps after the selected one are hidden, and a question about the next one is scored.
 *
 * The views get a run that ends with the selected step, so none of them can show an answer. One can go back, and forwards
 * again to the last step that was reached; further only through the question.
 */

import { h } from "../base/dom.js";
import { number } from "../base/quantities.js";
import { t } from "../base/text.js";
import { Replay } from "../run/replay.js";
import { onSelect, select, selected, shareSelection } from "../run/selection.js";
import { questionAbout } from "./questions.js";

/** @typedef {import("../run/data.js").Run} Run */
/** @typedef {import("../run/data.js").Step} Step */
/** @typedef {import("./questions.js").Question} Question */

/**
 * Return a run without an engine's steps after one.
 * @param {Run} run
 * @param {number} engine
 * @param {number} index
 * @returns {Run}
 */
export function runUpTo(run, engine, index) {
  return { ...run, engines: run.engines.map((one, i) => (i === engine ? { ...one, steps: one.steps.slice(0, index + 1) } : one)) };
}

/** State of Predict mode: answers, and the last step of each engine that may be shown. */
export class Predictor {
  /**
   * @param {Run} run
   * @param {Replay[]} replays
   */
  constructor(run, replays) {
    this.run = run;
    this.replays = replays;
    /** Answers about the steps that were asked about. @type {Map<Step, {engine: number, kind: string, choice: number, right: boolean}>} */
    this.answers = new Map();
    /** @type {Map<number, number>} */
    this.reached = new Map();
    /** @type {{key: string, run: Run, replay: Replay} | null} */
    this.shown = null;
    this.on = this.selected.predict;
    this.reach(this.selected.step);
    onSelect(run, () => {
      if (!this.on) this.reached.clear();
      this.on = this.selected.predict;
      this.reach(this.selected.step);
    });
  }

  get selected() {
    return selected(this.run);
  }

  /** @param {number} step */
  reach(step) {
    this.reached.set(this.selected.engine, Math.max(step, this.reached.get(this.selected.engine) ?? 0));
  }

  /** Return the index of the last step that one may go to. */
  get limit() {
    return this.selected.predict ? (this.reached.get(this.selected.engine) ?? 0) : Infinity;
  }

  /** Return the run and the replay that the views show. */
  view() {
    const { engine, step, predict } = this.selected;
    if (!predict) return { run: this.run, replay: this.replays[engine] };
    const key = `${engine} ${step}`;
    if (this.shown?.key !== key) {
      const run = runUpTo(this.run, engine, step);
      shareSelection(run, this.run);
      this.shown = { key, run, replay: new Replay(run.engines[engine], run.requests) };
    }
    return this.shown;
  }

  /** Return the step after the selected one, if any. @returns {Step | undefined} */
  get next() {
    return this.run.engines[this.selected.engine].steps[this.selected.step + 1];
  }

  /** Return the number of that step, as text. */
  get nextNumber() {
    return this.next ? number(this.next.n) : "";
  }

  /** Return the question about the step after the selected one, in the page's language. */
  get question() {
    return questionAbout(this.run, this.replays[this.selected.engine], this.selected.step + 1);
  }

  get answer() {
    return this.next && this.answers.get(this.next);
  }

  /** @param {number} choice */
  choose(choice) {
    const { question, next } = this;
    if (!question || !next || this.answer || choice >= question.choices.length) return;
    this.answers.set(next, { engine: this.selected.engine, kind: question.kind, choice, right: choice === question.right });
    this.reach(this.selected.step + 1);
    select(this.run, {});
  }

  /** Go on to the next step. */
  goOn() {
    if (this.next) select(this.run, { step: this.selected.step + 1 });
  }

  /** Forget all answers, and begin with the first step. */
  restart() {
    this.answers.clear();
    this.reached.clear();
    select(this.run, { step: 0 });
  }

  /** Return the score: `{right, asked, answers}`. */
  score() {
    const answers = [...this.answers].map(([{ n }, { engine, kind, right }]) => ({ engine, step: n, kind, right }));
    return { right: answers.filter(({ right }) => right).length, asked: answers.length, answers };
  }

  /**
   * Handle a key; return whether it was one of the question's: 1 to 9 choose, Enter continues.
   * @param {string} key
   */
  key(key) {
    if (!this.selected.predict) return false;
    const open = !this.answer && this.question !== null;
    if (key === "Enter" && !open && this.next) this.goOn();
    else if (/^[1-9]$/.test(key) && open) this.choose(Number(key) - 1);
    else return false;
    return true;
  }
}

/**
 * Return the switch and the score for the toolbar, the panel with the question, and a function that brings them up to
 * date.
 * @param {Predictor} predictor
 * @param {() => void} stopPlaying
 */
export function predictViews(predictor, stopPlaying) {
  const toggle = h(
    "button",
    {
      type: "button",
      class: "predict-switch",
      title: t("page.predict.lead"),
      onclick: () => {
        stopPlaying();
        select(predictor.run, { predict: !predictor.selected.predict });
      },
    },
    t("page.predict"),
  );
  const score = h("output", { class: "score", "aria-label": t("page.predict.score") });
  const asked = h("div", {});
  const verdict = h("div", { class: "verdict", role: "status" });
  const foot = h("p", { class: "quiz-foot" });
  const panel = h("section", { class: "quiz", "aria-label": t("page.predict") }, asked, verdict, foot, h("p", { class: "empty" }, t("page.predict.hidden")));
  const update = () => {
    const found = predictor.score();
    toggle.setAttribute("aria-pressed", String(predictor.selected.predict));
    score.textContent = found.asked ? t("page.predict.of", found) : "";
    score.hidden = !found.asked;
    panel.hidden = !predictor.selected.predict;
    document.documentElement.toggleAttribute("data-predicting", predictor.selected.predict);
    const hadFocus = panel.contains(document.activeElement);
    const question = predictor.selected.predict ? predictor.question : null;
    asked.replaceChildren(...(predictor.selected.predict ? questionParts(predictor, question) : []));
    verdict.replaceChildren(...(question && predictor.answer ? verdictParts(question, predictor.answer.right) : []));
    foot.replaceChildren(...(predictor.selected.predict ? footParts(predictor, question) : []));
    if (hadFocus) /** @type {HTMLElement | null} */ (panel.querySelector(".go-on") ?? panel.querySelector(".ask"))?.focus({ preventScroll: true });
  };
  return { controls: [toggle, score], panel, update };
}

/**
 * Return the question about the next step and its choices, or why there is none.
 * @param {Predictor} predictor
 * @param {Question | null} question
 */
function questionParts(predictor, question) {
  /** @param {string} text */
  const title = (text) => h("h3", { class: "ask", id: "ask", tabindex: "-1" }, text);
  if (!predictor.next) {
    const { right, asked } = predictor.score();
    return [title(t("page.predict.end")), asked ? h("p", {}, t("page.predict.end.score", { right, asked })) : ""];
  }
  if (!question) return [title(t("page.predict.noquestion", { n: predictor.nextNumber }))];
  return [
    title(question.text),
    question.facts.length ? h("ul", { class: "quiz-facts" }, ...question.facts.map((fact) => h("li", {}, fact))) : "",
    h("ol", { class: "choices", "aria-labelledby": "ask" }, ...question.choices.map((_, i) => h("li", {}, choiceButton(predictor, question, i)))),
  ];
}

/**
 * Return the button that goes on, and the keys.
 * @param {Predictor} predictor
 * @param {Question | null} question
 */
function footParts(predictor, question) {
  /** @param {string} name @param {string} key @param {() => void} action */
  const button = (name, key, action) => h("button", { type: "button", class: name, onclick: action }, t(key, { n: predictor.nextNumber }));
  if (!predictor.next) return [button("restart", "page.predict.again", () => predictor.restart())];
  const open = question && !predictor.answer;
  return [
    open ? button("skip", "page.predict.skip", () => predictor.goOn()) : button("go-on", "page.predict.continue", () => predictor.goOn()),
    h("small", {}, t(open ? "page.predict.keys" : "page.predict.keys.continue")),
  ];
}

/**
 * @param {Predictor} predictor
 * @param {Question} question
 * @param {number} i
 */
function choiceButton(predictor, question, i) {
  const { answer } = predictor;
  const mark = !answer ? "" : i === question.right ? "right" : i === answer.choice ? "wrong" : "other";
  const sign = { right: "✓", wrong: "✗", other: "", "": "" }[mark];
  return h(
    "button",
    { type: "button", class: `choice ${mark}`, disabled: Boolean(answer), "aria-keyshortcuts": i + 1, onclick: () => predictor.choose(i) },
    h("kbd", {}, i + 1),
    h("span", {}, question.choices[i].text),
    sign && h("span", { class: "mark", role: "img", "aria-label": t(`page.predict.mark.${mark}`) }, sign),
  );
}

/**
 * Return whether the answer was right, the right one, and the reason.
 * @param {Question} question
 * @param {boolean} right
 */
function verdictParts(question, right) {
  return [
    h("p", {}, h("strong", {}, t(right ? "page.predict.right" : "page.predict.wrong")), " ", right ? "" : t("page.predict.answer", { text: question.choices[question.right].text })),
    ...question.because.map((sentence) => h("p", { class: "because" }, sentence)),
  ];
}
